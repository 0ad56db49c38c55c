"""Which blocks a full store should give up: every policy of ours, and Belady's optimum, on recorded prompts.

The production slot table is driven as the engines drive it. A *hit* is a block of a prompt's longest cached prefix:
what a pin finds, because nothing behind a gap is of use. Each prompt then reserves and commits the rest; some prompts
later its decode leg pins, reads and asks for all of it once more, as on one node. Nothing depends on the clock, so a
figure has no spread: it is the same on every machine and in every run.

Belady's optimum keeps the blocks whose next use is the soonest, and does not keep what comes too late to be kept. A
block's next use is never earlier than that of the block before it in its chain; with the chain's end given up first
where they are equal, what it keeps is always whole prefixes, so it is the optimum for prefixes as well.
"""

import argparse
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from kvtransfer.eviction.choice import PolicyName
from kvtransfer.slots import SlotTable
from tests.benchmarks import machine
from tests.benchmarks.eviction_optimum import optimal_hits
from tests.benchmarks.eviction_prompts import Prompts, azure, mooncake
from tests.benchmarks.eviction_room import rooms
from tests.support.slot_tables import slot_table

CAPACITIES = (4_096, 8_192, 16_384, 32_768)
DECODE_LAG = 4
"""So many other prompts come between a prompt's prefill and its decode leg's reading of the blocks."""

QUICK_PROMPTS = 500
PREFILL, DECODE = 1, 2


@dataclass(frozen=True, slots=True)
class Row:
    """Hits of one policy at each capacity, and what a block of a prompt cost."""

    policy: str
    hits: Sequence[int]
    block_us: float | None


def main() -> None:
    options = parse()
    print(machine.describe())
    for prompts in (mooncake(), azure()):
        chosen = prompts.first(QUICK_PROMPTS) if options.quick else prompts
        print(f"\n{chosen.about}\n{chosen.facts()}")
        capacities = [chosen.scaled(capacity) for capacity in options.capacities]
        print(head(capacities), flush=True)
        for name in get_args(PolicyName):
            print(line(measure(name, chosen, capacities), chosen), flush=True)
        optimum = Row("Belady", [optimal_hits(chosen.keys, capacity) for capacity in capacities], None)
        print(line(optimum, chosen), flush=True)
    print(f"\n{rooms()}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capacities", nargs="+", type=int, default=CAPACITIES, help="slots of the store")
    parser.add_argument("--quick", action="store_true", help=f"a smoke run: the first {QUICK_PROMPTS:,} prompts")
    return parser.parse_args()


def measure(name: PolicyName, prompts: Prompts, capacities: Sequence[int]) -> Row:
    """One policy at all capacities."""
    started = time.perf_counter()
    hits = [served_hits(name, prompts.keys, capacity) for capacity in capacities]
    return Row(name, hits, 1e6 * (time.perf_counter() - started) / (len(capacities) * prompts.blocks))


def served_hits(name: PolicyName, prompts: Sequence[Sequence[bytes]], capacity: int) -> int:
    """Blocks found by all prompts in a store of `capacity` slots."""
    table = slot_table(capacity, name)
    decoding: deque[Sequence[bytes]] = deque()
    hits = 0
    for keys in prompts:
        hits += prefill(table, keys)
        decoding.append(keys)
        if len(decoding) > DECODE_LAG:
            decode(table, decoding.popleft())
    table.check()
    return hits


def prefill(table: SlotTable, keys: Sequence[bytes]) -> int:
    """Load the longest prefix, compute and save the rest; how many blocks were loaded."""
    pinned = table.pin(keys)
    table.reserve(keys, PREFILL)
    table.unpin(table.commit(keys, [0] * len(keys), PREFILL).values())
    table.unpin(pinned)
    return len(pinned)


def decode(table: SlotTable, keys: Sequence[bytes]) -> None:
    """Load what is there; the saver finds it there. What has gone is not counted and not written again."""
    pinned = table.pin(keys)
    table.reserve(keys[: len(pinned)], DECODE)
    table.unpin(pinned)


def head(capacities: Sequence[int]) -> str:
    """Above the hit ratios."""
    return "".join(["policy".ljust(16), *(f"{capacity:,} slots".rjust(14) for capacity in capacities), "   us/block"])


def line(row: Row, prompts: Prompts) -> str:
    """Hit ratios by capacity."""
    ratios = [f"{hits / prompts.blocks:.4f}".rjust(14) for hits in row.hits]
    cost = "-" if row.block_us is None else f"{row.block_us:.1f}"
    return "".join([row.policy.ljust(16), *ratios, cost.rjust(11)])


if __name__ == "__main__":
    main()
