"""What the slot table is told and tells: limits, results and figures, without behaviour."""

from dataclasses import dataclass

from kvtransfer.tenant import Tenant
from kvtransfer.transport import BlockKey


@dataclass(frozen=True, slots=True)
class Watermarks:
    """In slots: with more than `high` in use, blocks are evicted ahead of need until no more than `low` are."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """For each key a slot, or None when it is here, being written, or (`full` of them) has no room."""

    slots: list[int | None]
    full: int


@dataclass(frozen=True, slots=True)
class LeavingBlock:
    """A block that is about to be evicted; its slot does not change until it is let go."""

    slot: int
    key: BlockKey
    tenant: Tenant
    checksum: int


@dataclass(frozen=True, slots=True)
class SlotStatistics:
    """Slots by state (they sum to all slots; distrusted ones count as pinned) and counters that only grow."""

    free: int
    writing: int
    committed: int
    pinned: int
    pins: int
    committed_blocks: int
    evicted_blocks: int
    distrusted_blocks: int
