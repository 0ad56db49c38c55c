"""What a reservation costs in a full store: where it evicts itself, and where room was made ahead of need."""

import statistics
import time
from dataclasses import dataclass

from kvtransfer.slot_records import Watermarks
from tests.support.slot_tables import slot_table

SLOTS, TOGETHER, ROUNDS = 65_536, 32, 2_000
WRITER = 1


@dataclass(frozen=True, slots=True)
class Room:
    """Microseconds of CPU of a reservation, and of the eviction between two of them."""

    name: str
    median_us: float
    p99_us: float
    ahead_us: float

    def __str__(self) -> str:
        return f"{self.name.ljust(24)}{self.median_us:10.1f}{self.p99_us:10.1f}{self.ahead_us:16.1f}"


def rooms() -> str:
    """Both ways, as a table."""
    head = f"{f'reserve {TOGETHER} of {SLOTS:,}'.ljust(24)}{'median us':>10}{'p99 us':>10}{'ahead, mean us':>16}"
    full = Watermarks(SLOTS, SLOTS)
    ahead = Watermarks(int(0.98 * SLOTS), int(0.99 * SLOTS))
    return "\n".join([head, str(measure("evicts itself", full)), str(measure("finds room", ahead))])


def measure(name: str, marks: Watermarks) -> Room:
    """Fill a table, then replace blocks in it."""
    table = slot_table(SLOTS, "prefix_aware", marks=marks)
    reserved_us, ahead_s = [], 0.0
    for number in range(SLOTS // TOGETHER + ROUNDS):
        keys = [b"%d/%d" % (number, position) for position in range(TOGETHER)]
        started = time.thread_time()
        table.reserve(keys, WRITER)
        reserved = time.thread_time()
        table.unpin(table.commit(keys, [0] * len(keys), WRITER).values())
        committed = time.thread_time()
        table.evict(table.crowding)
        ahead_s += time.thread_time() - committed
        reserved_us.append(1e6 * (reserved - started))
    last = sorted(reserved_us[-ROUNDS:])
    return Room(name, statistics.median(last), last[int(0.99 * ROUNDS)], 1e6 * ahead_s / ROUNDS)
