"""The part of the local protocol that serves people: what a store says of itself. See `kvtransfer.protocol`."""

import msgspec

from kvtransfer.counters import ChecksumPlace, Direction
from kvtransfer.slot_records import EvictionReason
from kvtransfer.transport import Medium


class Statistics(msgspec.Struct, frozen=True, tag="statistics"):
    """Reply: `StoreStatistics`."""

    id: int


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
