"""Many operations on one store's books, its arena and its eviction, with every block's bytes checked when it is read.

Three engines take turns: each writes prompts that share prefixes, reads, labels, distrusts, leaves blocks half written
and comes back as another connection. Any wrong byte, any pin or slot left over ends it; `check()` is called at the end,
when everybody has gone. `--disk` puts files below the arena.

What is counted is blocks asked for: reserved, committed, abandoned, pinned, unpinned, distrusted.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvtransfer.checksum import block_checksum
from kvtransfer.disk.folder import BlockFolder
from kvtransfer.disk.table import DiskTable
from kvtransfer.disk.tier import DiskTier
from kvtransfer.eviction.choice import policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.settings import StoreSettings
from kvtransfer.slots import Owner
from kvtransfer.store import Store
from tests.benchmarks import machine
from tests.fakes.disk_work import PromptWork

SLOTS, SLOT_BYTES, PLACES = 2_048, 256, 4_096
ENGINES = 3
TENANTS = (b"", b"x", b"y")
PROMPTS, MOST_BLOCKS = 400, 64


@dataclass(slots=True)
class Engine:
    """One connection: what it is writing and what it has pinned."""

    owner: Owner
    writing: dict[bytes, int] = field(default_factory=dict)
    pinned: list[Sequence[bytes]] = field(default_factory=list)


class Stress:
    """The same seed does the same."""

    def __init__(self, store: Store, seed: int) -> None:
        self.operations = 0
        self.read_blocks = 0
        self._store = store
        self._arena = store.attach(SLOT_BYTES)
        self._rng = random.Random(seed)
        self._engines = [Engine(store.open_owner()) for _ in range(ENGINES)]
        self._content: dict[bytes, bytes] = {}

    def run(self, operations: int) -> None:
        """At least so many operations, then everybody leaves."""
        acts = (self._write, self._write, self._read, self._read, self._let_go, self._let_go, self._rarely)
        while self.operations < operations:
            engine = self._rng.choice(self._engines)
            self._rng.choice(acts)(engine)
            self._store.make_room(min(64, self._store.crowding))
        for engine in self._engines:
            self._store.release_owner(engine.owner)

    def _prompt(self) -> tuple[list[bytes], bytes]:
        """A prompt's keys and whose it is: many prompts begin alike, each tenant's own."""
        number = min(int(self._rng.expovariate(0.02)), PROMPTS)
        tenant = TENANTS[number % len(TENANTS)]
        shared = self._rng.randrange(0, 8)
        count = self._rng.randrange(1, MOST_BLOCKS)
        names = (number % 7 if position < shared else number for position in range(count))
        return [b"%s/%d/%d" % (tenant, name, position) for position, name in enumerate(names)], tenant

    def _write(self, engine: Engine) -> None:
        keys, tenant = self._prompt()
        slots = self._store.reserve(engine.owner, keys, tenant).slots
        self.operations += len(keys)
        for key, slot in zip(keys, slots, strict=True):
            if slot is not None:
                engine.writing[key] = slot
        if self._rng.random() < 0.9:
            self._commit(engine)

    def _commit(self, engine: Engine) -> None:
        keys = list(engine.writing)
        for key in keys:
            self._arena.slot(engine.writing[key])[:] = self._bytes_of(key)
        checksums = [block_checksum(self._bytes_of(key)) for key in keys]
        assert self._store.commit(engine.owner, keys, checksums) == len(keys)
        self._store.label(keys, [hash(key) & 0xFFFF_FFFF for key in keys])
        self.operations += len(keys)
        engine.writing.clear()

    def _read(self, engine: Engine) -> None:
        keys, _ = self._prompt()
        for key in keys:
            if not self._store.is_in_arena(key):
                self._store.is_coming(key)
                break
        blocks = self._store.pin(engine.owner, keys)
        self.operations += len(keys)
        for key, block in zip(keys, blocks, strict=False):
            content = self._bytes_of(key)
            assert self._arena.slot(block.slot) == content, f"wrong bytes in slot {block.slot}"
            assert block.checksum == block_checksum(content)
        self.read_blocks += len(blocks)
        if blocks:
            engine.pinned.append(keys[: len(blocks)])

    def _let_go(self, engine: Engine) -> None:
        if engine.pinned:
            keys = engine.pinned.pop(self._rng.randrange(len(engine.pinned)))
            assert self._store.unpin(engine.owner, keys) == len(keys)
            self.operations += len(keys)

    def _rarely(self, engine: Engine) -> None:
        chance = self._rng.random()
        if chance < 0.01:
            self._store.release_owner(engine.owner)
            self._engines[self._engines.index(engine)] = Engine(self._store.open_owner())
        elif chance < 0.05:
            keys, _ = self._prompt()
            self._store.distrust(keys[:2])
            self.operations += 2
        elif chance < 0.2:
            self._store.abandon(engine.owner, list(engine.writing))
            self.operations += len(engine.writing)
            engine.writing.clear()

    def _bytes_of(self, key: bytes) -> bytes:
        content = self._content.get(key)
        if content is None:
            content = self._content[key] = (key * SLOT_BYTES)[:SLOT_BYTES]
        return content


@contextmanager
def stressed_store(disk: bool) -> Iterator[Store]:
    """A store with watermarks and weights, whose disk, if it has one, works as soon as it is asked to."""
    settings = StoreSettings(
        SLOTS * SLOT_BYTES, "unused", high_watermark=0.98, low_watermark=0.95, tenant_weights={b"y": 2.0}
    )
    store = Store(settings)
    if not disk:
        yield store
        store.close()
        return
    with tempfile.TemporaryDirectory(prefix="baton-stress-") as path:
        folder = BlockFolder.claim(Path(path), "stress")
        table = DiskTable(PLACES, TenantShares(PLACES, policy_maker("prefix_aware", PLACES)))
        store.use_disk(DiskTier(folder, table, PromptWork(64), PromptWork(64)), [])
        yield store
        folder.close()
    store.close()


def stress(operations: int, disk: bool, seed: int) -> str:
    """Run, check, and say what was done."""
    with stressed_store(disk) as store:
        started = time.perf_counter()
        run = Stress(store, seed)
        run.run(operations)
        took_s = time.perf_counter() - started
        store.check()
        slots = store.slot_statistics()
        assert (slots.pins, slots.writing) == (0, 0)
        counters = "" if store.disk is None else f", disk: {store.disk.counters}"
        return (
            f"{run.operations:,} operations in {took_s:.1f} s ({1e6 * took_s / run.operations:.2f} us each), "
            f"{run.read_blocks:,} blocks read and compared, {slots.evicted_blocks:,} evicted{counters}; all checks hold"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--disk", action="store_true", help="files below the arena")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(machine.describe())
    print(f"seed {options.seed}: {stress(options.operations, options.disk, options.seed)}")


if __name__ == "__main__":
    main()
