"""The slot table: which block is in which slot, and who may touch it. Pure: no memory, clock or I/O.

Invariants (`check`): a key names at most one slot that is being written or can be read; only COMMITTED slots are on
offer for eviction; a slot has pins exactly in PINNED and DISTRUSTED, and a writer exactly in WRITING; the shares know
which tenant holds how many slots. A slot's number is stable while it is pinned: pins are held by slot, not by key.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from kvtransfer.eviction.shares import TenantShares
from kvtransfer.slot_records import (
    EvictionReason,
    LeavingBlock,
    Owner,
    Reservation,
    Slot,
    SlotStatistics,
    Watermarks,
    Writing,
    eviction_reason,
)
from kvtransfer.states import SLOT_TRANSITIONS, SlotEvent, SlotState
from kvtransfer.tenant import NO_TENANT, Tenant
from kvtransfer.transport import BlockKey

Follower = Callable[[BlockKey, bool], None]
"""Told of each block that can be read from now on (True) or cannot any more (False)."""

READABLE = (SlotState.COMMITTED, SlotState.PINNED)


class SlotTable:
    """Owns the state of every slot."""

    def __init__(self, slots: int, shares: TenantShares, marks: Watermarks, tell: Follower) -> None:
        self._marks = marks
        self._tell = tell
        self._slots = [Slot() for _ in range(slots)]
        self._free = list(range(slots - 1, -1, -1))
        self._by_key: dict[BlockKey, int] = {}
        self._written_by: dict[Owner, dict[BlockKey, int]] = {}
        self._shares = shares
        self._counts = dict.fromkeys(SlotState, 0) | {SlotState.FREE: slots}
        self._evicted: Counter[EvictionReason] = Counter()
        self._pins = self._committed_blocks = self._distrusted_blocks = 0

    def reserve(
        self, keys: Sequence[BlockKey], owner: Owner, tenant: Tenant = NO_TENANT, now: float = 0.0
    ) -> Reservation:
        """Slots for `owner` to write, from `now` on, the blocks that are not here. What is here counts as used, so it
        goes last.
        """
        for key in reversed(keys):
            self._touch(key)
        missing = sum(key not in self._by_key for key in dict.fromkeys(keys))
        self.evict(missing - len(self._free), tenant)
        slots: list[int | None] = []
        full = 0
        for key in keys:
            slot = None
            if key not in self._by_key:
                slot = self._reserve_one(key, owner, tenant, now)
                full += slot is None
            slots.append(slot)
        return Reservation(slots, full)

    @property
    def crowding(self) -> int:
        """How many blocks must go to reach the low watermark, once the high one is passed; 0 before."""
        return self.excess if len(self._slots) - len(self._free) > self._marks.high else 0

    @property
    def excess(self) -> int:
        """How many slots are in use beyond the low watermark."""
        return max(0, len(self._slots) - len(self._free) - self._marks.low)

    def evict(self, count: int, wanting: Tenant | None = None) -> int:
        """Free up to `count` slots, for `wanting` or for whoever comes; how many."""
        chosen = self._shares.choose(count, wanting) if count > 0 else ()
        for slot in chosen:
            self._evict_one(slot, eviction_reason(wanting, self._slots[slot].tenant))
        return len(chosen)

    def leave(self, count: int) -> list[LeavingBlock]:
        """Choose up to `count` blocks to evict, pinned until `let_go`: they are copied elsewhere first."""
        chosen = self._shares.choose(count) if count > 0 else []
        for slot in chosen:
            self._move(slot, SlotEvent.PIN).pins += 1
        self._pins += len(chosen)
        entries = [(slot, self._slots[slot]) for slot in chosen]
        return [LeavingBlock(slot, entry.key, entry.tenant, entry.checksum) for slot, entry in entries]

    def let_go(self, slot: int) -> None:
        """Evict a block that was to leave, unless somebody has pinned it meanwhile."""
        entry = self._slots[slot]
        if entry.pins > 1 or entry.state is SlotState.DISTRUSTED:
            self._unpin_one(slot)
            return
        self._move(slot, SlotEvent.LAST_UNPIN).pins -= 1
        self._pins -= 1
        self._evict_one(slot, "watermark")

    def commit(self, key: BlockKey, checksum: int, owner: Owner) -> int | None:
        """The owner's slot holds the whole block: its slot, readable now; None when the owner was not writing it."""
        slot = self._written_by.get(owner, {}).pop(key, None)
        if slot is None:
            return None
        entry = self._move(slot, SlotEvent.COMMIT)
        entry.owner, entry.checksum = None, checksum
        self._shares.offer(entry.tenant, slot, key)
        self._committed_blocks += 1
        self._tell(key, True)
        return slot

    def abandon(self, key: BlockKey, owner: Owner) -> bool:
        """The owner will not write the block. False when it was not writing it."""
        slot = self._written_by.get(owner, {}).pop(key, None)
        if slot is None:
            return False
        self._move(slot, SlotEvent.ABANDON)
        self._vacate(slot)
        return True

    def release_owner(self, owner: Owner) -> list[BlockKey]:
        """Abandon everything the owner is writing; the keys that will not come."""
        keys = list(self._written_by.get(owner, {}))
        for key in keys:
            self.abandon(key, owner)
        self._written_by.pop(owner, None)
        return keys

    def pin(self, key: BlockKey) -> int | None:
        """Pin a readable block: its slot, or None when it cannot be read."""
        slot = self._by_key.get(key)
        if slot is None or self._slots[slot].state not in READABLE:
            return None
        if self._slots[slot].state is SlotState.COMMITTED:
            self._withdraw(slot)
        self._move(slot, SlotEvent.PIN).pins += 1
        self._pins += 1
        return slot

    def unpin(self, slots: Iterable[int]) -> None:
        """Drop one pin of each slot, given in prompt order: a chain's end is of no use without its start, so the end
        becomes the older for eviction.
        """
        for slot in reversed(list(slots)):
            self._unpin_one(slot)

    def distrust(self, key: BlockKey) -> bool:
        """Forget a readable block: at once, or when its last pin goes. False when it is not here."""
        slot = self._by_key.get(key)
        if slot is None or self._slots[slot].state not in READABLE:
            return False
        if self._slots[slot].state is SlotState.COMMITTED:
            self._withdraw(slot)
        del self._by_key[key]
        if self._move(slot, SlotEvent.DISTRUST).state is SlotState.FREE:
            self._empty(slot)
        self._distrusted_blocks += 1
        self._tell(key, False)
        return True

    def drop(self, key: BlockKey) -> bool:
        """Evict a block though nobody needs its room. False when it is not here, or in use."""
        slot = self._by_key.get(key)
        if slot is None or self._slots[slot].state is not SlotState.COMMITTED:
            return False
        self._withdraw(slot)
        self._evict_one(slot, "dropped")
        return True

    def is_in_use(self, key: BlockKey) -> bool:
        """Whether the block is pinned or being written."""
        slot = self._by_key.get(key)
        return slot is not None and self._slots[slot].state is not SlotState.COMMITTED

    def is_readable(self, key: BlockKey) -> bool:
        """Whether the block can be pinned."""
        slot = self._by_key.get(key)
        return slot is not None and self._slots[slot].state in READABLE

    def readable(self) -> list[BlockKey]:
        """Every block that can be pinned."""
        return [key for key, slot in self._by_key.items() if self._slots[slot].state in READABLE]

    def is_being_written(self, key: BlockKey) -> bool:
        """Whether somebody reserved the block and has neither committed nor abandoned it."""
        slot = self._by_key.get(key)
        return slot is not None and self._slots[slot].state is SlotState.WRITING

    def look(self, slot: int) -> Slot:
        """What is known of a slot, not to be changed."""
        return self._slots[slot]

    def checksum(self, slot: int) -> int:
        """The checksum committed with the block in `slot`."""
        return self._slots[slot].checksum

    def statistics(self) -> SlotStatistics:
        """A truthful snapshot."""
        return SlotStatistics(
            free=self._counts[SlotState.FREE],
            writing=self._counts[SlotState.WRITING],
            committed=self._counts[SlotState.COMMITTED],
            pinned=self._counts[SlotState.PINNED] + self._counts[SlotState.DISTRUSTED],
            pins=self._pins,
            committed_blocks=self._committed_blocks,
            distrusted_blocks=self._distrusted_blocks,
            evicted=dict(self._evicted),
        )

    def oldest_writing(self) -> Writing | None:
        """Who has been writing a block for the longest."""
        firsts = [next(iter(written.values())) for written in self._written_by.values() if written]
        if not firsts:
            return None
        entry = min((self._slots[slot] for slot in firsts), key=lambda entry: entry.since_s)
        assert entry.owner is not None
        return Writing(entry.owner, entry.since_s)

    def check(self) -> None:
        """Assert the invariants. Costs time in proportion to the slots: for tests."""
        for state in SlotState:
            assert self._counts[state] == sum(entry.state is state for entry in self._slots)
        assert sorted(self._free) == [i for i, e in enumerate(self._slots) if e.state is SlotState.FREE]
        assert len(self._shares) == self._counts[SlotState.COMMITTED]
        self._shares.check(Counter(entry.tenant for entry in self._slots if entry.state is not SlotState.FREE))
        assert self._pins == sum(entry.pins for entry in self._slots)
        for index, entry in enumerate(self._slots):
            assert (entry.pins > 0) == (entry.state in (SlotState.PINNED, SlotState.DISTRUSTED))
            assert (entry.owner is not None) == (entry.state is SlotState.WRITING)
            named = entry.state in (SlotState.WRITING, *READABLE)
            assert named == (self._by_key.get(entry.key) == index)
            if entry.owner is not None:
                assert self._written_by[entry.owner][entry.key] == index
        assert sum(map(len, self._written_by.values())) == self._counts[SlotState.WRITING]

    def __repr__(self) -> str:
        counts = " ".join(f"{state.value}={count}" for state, count in self._counts.items() if count)
        return f"<SlotTable {counts} pins={self._pins}>"

    def _move(self, slot: int, event: SlotEvent) -> Slot:
        """The only place that assigns a slot's state."""
        entry = self._slots[slot]
        after = SLOT_TRANSITIONS[entry.state][event]
        self._counts[entry.state] -= 1
        self._counts[after] += 1
        entry.state = after
        return entry

    def _reserve_one(self, key: BlockKey, owner: Owner, tenant: Tenant, now: float) -> int | None:
        if not self._free:
            return None
        slot = self._free.pop()
        entry = self._move(slot, SlotEvent.RESERVE)
        entry.key, entry.owner, entry.tenant, entry.since_s = key, owner, tenant, now
        self._shares.hold(tenant)
        self._by_key[key] = slot
        self._written_by.setdefault(owner, {})[key] = slot
        return slot

    def _evict_one(self, slot: int, reason: EvictionReason) -> None:
        """Of a block that is not on offer any more."""
        key = self._slots[slot].key
        self._move(slot, SlotEvent.EVICT)
        self._vacate(slot)
        self._evicted[reason] += 1
        self._tell(key, False)

    def _unpin_one(self, slot: int) -> None:
        entry = self._slots[slot]
        self._move(slot, SlotEvent.LAST_UNPIN if entry.pins == 1 else SlotEvent.UNPIN)
        entry.pins -= 1
        self._pins -= 1
        if entry.state is SlotState.COMMITTED:
            self._shares.offer(entry.tenant, slot, entry.key)
        elif entry.state is SlotState.FREE:
            self._empty(slot)

    def _touch(self, key: BlockKey) -> None:
        slot = self._by_key.get(key)
        if slot is not None and self._slots[slot].state is SlotState.COMMITTED:
            self._withdraw(slot)
            self._shares.offer(self._slots[slot].tenant, slot, key)

    def _withdraw(self, slot: int) -> None:
        self._shares.withdraw(self._slots[slot].tenant, slot)

    def _vacate(self, slot: int) -> None:
        del self._by_key[self._slots[slot].key]
        self._empty(slot)

    def _empty(self, slot: int) -> None:
        entry = self._slots[slot]
        self._shares.give_back(entry.tenant)
        entry.key, entry.owner, entry.checksum, entry.tenant = b"", None, 0, NO_TENANT
        self._free.append(slot)
