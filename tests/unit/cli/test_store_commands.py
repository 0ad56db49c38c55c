"""`baton store` against stores that really run, in threads, without Ray."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from cluster.cli import store_tables, stores
from cluster.cli.stores import Drops, Listing, NamedStore, Verification
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.arena import Arena
from kvtransfer.checksum import block_checksum
from tests.support.store_thread import SECRET, StoreThread, running_store
from tests.unit.cli.test_command import baton

SLOT_BYTES = 64
SLOTS = 2500  # more than a page
ADDRESS = "tcp://[fd00::1]:4100"
KEYS = [bytes([i]) * 32 for i in range(12)]


class Filled:
    """A store with blocks, as a person finds it who asks for it, and its writer."""

    def __init__(self, writer: AsyncStoreClient, arena: Arena, named: NamedStore) -> None:
        self.writer = writer
        self.arena = arena
        self.named = named


async def connect(thread: StoreThread, name: str) -> AsyncStoreClient:
    return await AsyncStoreClient.connect(thread.socket_name, thread.fingerprint, name, SECRET)


@pytest.fixture
async def filled() -> AsyncIterator[Filled]:
    """Blocks in slots of two pages, all sound."""
    async with AsyncExitStack() as stack:
        thread = stack.enter_context(running_store("cli", SLOTS * SLOT_BYTES))
        writer, visitor = await connect(thread, "engine"), await connect(thread, "person")
        stack.push_async_callback(writer.close)
        stack.push_async_callback(visitor.close)
        arena = await writer.attach(SLOT_BYTES)
        await writer.reserve([b"%032d" % i for i in range(1500)])
        for key, slot in zip(KEYS, (await writer.reserve(KEYS)).slots, strict=True):
            assert slot is not None
            await writer.commit([key], [block_checksum(arena.slot(slot))])
        yield Filled(writer, arena, NamedStore("0a1b", ADDRESS, visitor))


async def test_statistics_have_a_column_for_each_store(filled: Filled) -> None:
    await filled.writer.pin(KEYS[:2])
    found = await stores.statistics([filled.named, filled.named])
    shown = store_tables.statistics(found)
    assert "0a1b" in shown
    assert shown.count(ADDRESS) == 2
    assert "988 / 1500 / 10 / 2" in shown
    assert "client 'engine'" in shown
    (told, _) = json.loads(store_tables.to_json(found))
    assert (told["node"], told["address"], told["result"]["pins"]) == ("0a1b", ADDRESS, 2)
    assert told["result"]["oldest_pin"]["owner"] == "client 'engine'"


async def test_a_listing_ends_at_its_limit_and_says_that_there_is_more(filled: Filled) -> None:
    (found,) = await stores.listing([filled.named], 1504)
    assert (len(found.result.lines), found.result.more) == (1504, True)
    assert [line.state for line in found.result.lines[1499:1501]] == ["writing", "committed"]
    shown = store_tables.listing([found])
    assert KEYS[0].hex()[:16] in shown
    assert shown.endswith("and more on 0a1b: --limit shows them")
    (every,) = await stores.listing([filled.named], 9999)
    assert (len(every.result.lines), every.result.more) == (1512, False)
    assert json.loads(store_tables.to_json([every]))[0]["result"]["lines"][1500]["key"] == KEYS[0].hex()


async def test_blocks_are_dropped_by_how_their_keys_begin_or_all_that_nobody_uses(filled: Filled) -> None:
    await filled.writer.pin(KEYS[3:5])
    (one,) = await stores.drop([filled.named], [KEYS[0].hex()[:8], KEYS[3].hex()])
    assert one.result == Drops(dropped=1, in_use=1)
    (rest,) = await stores.drop([filled.named], [""])
    assert rest.result == Drops(dropped=9, in_use=1502)
    assert store_tables.drops([rest]) == "0a1b: 9 blocks dropped, 1502 in use and kept"


async def test_every_slot_is_verified_and_progress_told(filled: Filled) -> None:
    (line,) = (line for line in (await filled.named.store.slots(1024)).lines if line.key == KEYS[7])
    filled.arena.slot(line.slot)[9] ^= 4
    told: list[tuple[str, int, int]] = []
    (found,) = await stores.verify([filled.named], lambda *progress: told.append(progress))
    assert found.result == Verification(12, [KEYS[7]])
    assert told == [(ADDRESS, 0, SLOTS), (ADDRESS, SLOTS, SLOTS)]
    assert store_tables.verifications([found]).splitlines() == [
        "0a1b: 12 blocks verified, 1 corrupt and forgotten",
        f"  {KEYS[7].hex()}",
    ]
    (again,) = await stores.verify([filled.named], lambda *_: None)
    assert again.result == Verification(11, [])


async def test_a_store_without_an_arena_is_shown_too() -> None:
    with running_store("cli", SLOTS * SLOT_BYTES) as thread:
        visitor = await connect(thread, "person")
        named = [NamedStore("0a1b", ADDRESS, visitor)]
        assert "0 / 0 / 0 / 0" in store_tables.statistics(await stores.statistics(named))
        assert (await stores.listing(named, 5))[0].result == Listing(0, [], False)
        assert (await stores.verify(named, lambda *_: None))[0].result == Verification(0, [])
        await visitor.close()


def test_it_says_so_when_nothing_runs(tmp_path: str) -> None:
    done = baton("store", "stats", BATON_RUNS=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no `baton serve` of yours is up: name the Ray cluster with --address")


def test_drop_wants_keys_or_all() -> None:
    assert baton("store", "drop").returncode == 2
    done = baton("store", "drop", "xyz")
    assert (done.returncode, "'xyz' is not how a key begins" in done.stderr) == (2, True)
