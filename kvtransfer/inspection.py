"""The part of the local protocol that serves people: what a store says of itself. See `kvtransfer.protocol`.

Every request does a bounded part of its work; `next_slot` of a reply says where the next begins, None at the end.
"""

import msgspec

from kvtransfer.counters import ChecksumPlace, Direction
from kvtransfer.slot_records import EvictionReason
from kvtransfer.transport import Medium


class Statistics(msgspec.Struct, frozen=True, tag="statistics"):
    """Reply: `StoreStatistics`."""

    id: int


class ListSlots(msgspec.Struct, frozen=True, tag="list_slots"):
    """See what is in some slots, from `first_slot` on. Reply: `SlotPage`."""

    id: int
    first_slot: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Forget these blocks, on disk as well, unless they are pinned or being written. Reply: `Dropped`."""

    id: int
    keys: list[bytes]


class Verify(msgspec.Struct, frozen=True, tag="verify"):
    """Compute the checksums of the readable blocks in some slots, from `first_slot` on, and forget what is corrupt.

    Reply: `Verified`, late. One at a time on a connection.
    """

    id: int
    first_slot: int


# Replies


class SlotLine(msgspec.Struct, frozen=True, array_like=True):
    """A slot that is not free. `age_s` since it was reserved; `label` is the name a worker gave the block; `writer` is
    empty unless the block is being written.
    """

    slot: int
    key: bytes
    state: str
    age_s: float
    pins: int
    label: int | None
    writer: str


class SlotPage(msgspec.Struct, frozen=True, tag="slot_page"):
    """What is in some of the arena's `slots` slots of `slot_bytes` bytes."""

    id: int
    slots: int
    slot_bytes: int
    lines: list[SlotLine]
    next_slot: int | None


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """How many blocks went, and how many were in use and stayed; the others were not here."""

    id: int
    dropped: int
    in_use: int


class Verified(msgspec.Struct, frozen=True, tag="verified"):
    """How many blocks were looked at, and which were corrupt and are forgotten."""

    id: int
    looked_at: int
    corrupt: list[bytes]
    next_slot: int | None


class Traffic(msgspec.Struct, frozen=True):
    """What moved between this store and others in one direction, by one medium."""

    direction: Direction
    medium: Medium
    blocks: int
    bytes: int


class Oldest(msgspec.Struct, frozen=True):
    """What an owner has held for the longest: its name, and for how long."""

    owner: str
    age_s: float


class StoreStatistics(msgspec.Struct, frozen=True, tag="store_statistics"):
    """A truthful snapshot. Slots by state sum to the arena's slots; counters only grow within one epoch.

    `distrusted_blocks` were forgotten for a wrong checksum, wherever it was found (`checksum_failures`).
    """

    id: int
    epoch: str
    slots: int
    slot_bytes: int
    free_slots: int
    writing_slots: int
    committed_slots: int
    pinned_slots: int
    pins: int
    handoffs: int
    connections: int
    committed_blocks: int
    distrusted_blocks: int
    failed_handoffs: int
    late_handoffs: int
    evicted: dict[EvictionReason, int]  # blocks
    checksum_failures: dict[ChecksumPlace, int]  # blocks
    traffic: list[Traffic]
    oldest_pin: Oldest | None
    oldest_writing: Oldest | None
    disk_blocks: int = 0
    disk_written_blocks: int = 0
    disk_read_blocks: int = 0
    disk_evicted_blocks: int = 0
    disk_unkept_blocks: int = 0
    disk_failed_writes: int = 0
    disk_damaged_files: int = 0
    refused_connections: int = 0
