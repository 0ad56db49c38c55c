"""What the slot table is told and tells: limits, results and figures, without behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kvtransfer.states import SlotState
from kvtransfer.tenant import Tenant
from kvtransfer.transport import BlockKey

Owner = int
"""Names whoever reserves slots and announces hand-offs: a connection or a pull, never reused within one store."""

EvictionReason = Literal["room", "share", "watermark", "dropped"]
"""Why a readable block had to go: for a block of its own tenant, for one of another tenant while its own held more than
its share, to get down to the low watermark, or because somebody said so."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """In slots: with more than `high` in use, blocks are evicted ahead of need until no more than `low` are."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Who reserved some slots together, for whose blocks, and when, on the store's clock."""

    owner: Owner
    tenant: Tenant
    since_s: float


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot as it is now; `owner` is who writes it."""

    state: SlotState
    key: BlockKey
    owner: Owner | None
    checksum: int
    pins: int
    tenant: Tenant
    since_s: float


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
    distrusted_blocks: int
    evicted: Mapping[EvictionReason, int]

    @property
    def evicted_blocks(self) -> int:
        """For whatever reason."""
        return sum(self.evicted.values())


@dataclass(frozen=True, slots=True)
class Writing:
    """A slot that an owner has been writing since a moment of the store's clock."""

    owner: Owner
    since_s: float


def eviction_reason(wanting: Tenant | None, holder: Tenant) -> EvictionReason:
    """Why a block of `holder` goes, for `wanting` or, when that is None, ahead of need."""
    if wanting is None:
        return "watermark"
    return "room" if wanting == holder else "share"
