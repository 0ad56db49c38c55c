"""The slot table: which block is in which slot, and who may touch it. Pure: no memory, clock or I/O.

A prompt has hundreds of blocks, so every operation takes many at once, in prompt order.

Invariants (`check`): a key names at most one slot that is being written or can be read; only COMMITTED slots are on
offer for eviction; a slot has pins exactly in PINNED and DISTRUSTED, and a writer exactly in WRITING; the shares know
which tenant holds how many slots. A slot's number is stable while it is pinned: pins are held by slot, not by key.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby

from kvtransfer.eviction.shares import TenantShares
from kvtransfer.slot_index import NOBODY, READABLE, SlotIndex
from kvtransfer.slot_records import (
    EvictionReason,
    LeavingBlock,
    Origin,
    Owner,
    Reservation,
    SlotStatistics,
    Watermarks,
    eviction_reason,
)
from kvtransfer.states import SlotEvent, SlotState
from kvtransfer.tenant import NO_TENANT, Tenant
from kvtransfer.transport import BlockKey

Follower = Callable[[BlockKey, bool], None]
"""Told of each block that can be read from now on (True) or cannot any more (False)."""

Tell = Callable[[Iterable[BlockKey], bool], None]
"""The same of many blocks."""


class SlotTable(SlotIndex):
    """Owns the state of every slot."""

    def __init__(self, slots: int, shares: TenantShares, marks: Watermarks, tell: Tell) -> None:
        super().__init__(slots)
        self._marks = marks
        self._tell = tell
        self._shares = shares
        self._evicted: Counter[EvictionReason] = Counter()
        self._pins = self._committed_blocks = self._distrusted_blocks = 0

    def reserve(
        self, keys: Sequence[BlockKey], owner: Owner, tenant: Tenant = NO_TENANT, now: float = 0.0
    ) -> Reservation:
        """Slots for `owner` to write, from `now` on, the blocks that are not here. What is here counts as used, so it
        goes last.
        """
        absent = self.absent(keys)
        if len(absent) < len(keys):
            self._touch(keys)
        if self.evict(len(absent) - len(self._free), tenant):
            absent = self.absent(keys)
        reserved = dict(zip(absent, self._take(len(absent)), strict=False))
        self._start_writing(reserved, Origin(owner, tenant, now))
        if len(reserved) == len(keys):
            return Reservation(list(reserved.values()), 0)
        no_room = set(absent[len(reserved) :])
        return Reservation([reserved.pop(key, None) for key in keys], sum(key in no_room for key in keys))

    @property
    def crowding(self) -> int:
        """How many blocks must go to reach the low watermark, once the high one is passed; 0 before."""
        return self.excess if self._used > self._marks.high else 0

    @property
    def excess(self) -> int:
        """How many slots are in use beyond the low watermark."""
        return max(0, self._used - self._marks.low)

    def evict(self, count: int, wanting: Tenant | None = None) -> int:
        """Free up to `count` slots, for `wanting` or for whoever comes; how many."""
        chosen = self._shares.choose(count, wanting) if count > 0 else ()
        for slot in chosen:
            self._evict_one(slot, eviction_reason(wanting, self._tenant(slot)))
        return len(chosen)

    def leave(self, count: int) -> list[LeavingBlock]:
        """Choose up to `count` blocks to evict, pinned until `let_go`: they are copied elsewhere first."""
        chosen = self._shares.choose(count) if count > 0 else []
        self._pin(chosen)
        return [LeavingBlock(slot, self._keys[slot], self._tenant(slot), self._checksums[slot]) for slot in chosen]

    def let_go(self, slot: int) -> None:
        """Evict a block that was to leave, unless somebody has pinned it meanwhile."""
        if self._pin_counts[slot] > 1 or self._states[slot] is SlotState.DISTRUSTED:
            self.unpin([slot])
            return
        self._move([slot], SlotEvent.LAST_UNPIN)
        self._pin_counts[slot] = 0
        self._pins -= 1
        self._evict_one(slot, "watermark")

    def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int], owner: Owner) -> dict[BlockKey, int]:
        """The owner's slots hold whole blocks: those that were its own, readable now and pinned once, for the caller to
        unpin.
        """
        own = self._no_more_written(keys, owner)
        self._move(own.values(), SlotEvent.COMMIT)
        for key, checksum in zip(keys, checksums, strict=True):
            if key in own:
                self._checksums[own[key]], self._pin_counts[own[key]] = checksum, 1
        self._pins += len(own)
        self._committed_blocks += len(own)
        self._tell(own, True)
        return own

    def abandon(self, keys: Iterable[BlockKey], owner: Owner) -> list[BlockKey]:
        """The owner will not write these blocks: those that it was writing."""
        own = self._no_more_written(keys, owner)
        self._move(own.values(), SlotEvent.ABANDON)
        for slot in own.values():
            self._vacate(slot)
        return list(own)

    def release_owner(self, owner: Owner) -> list[BlockKey]:
        """Abandon everything the owner is writing; the keys that will not come."""
        keys = self.abandon(list(self._written_by.get(owner, ())), owner)
        self._written_by.pop(owner, None)
        return keys

    def pin(self, keys: Iterable[BlockKey]) -> list[int]:
        """Pin the readable blocks up to the first that cannot be read: their slots."""
        states, slots = self._states, list[int]()
        for slot in map(self._by_key.get, keys):
            if slot is None or states[slot] not in READABLE:
                break
            slots.append(slot)
        self._withdraw(list(dict.fromkeys(self._unused(slots))))
        self._pin(slots)
        return slots

    def pin_present(self, keys: Iterable[BlockKey]) -> dict[BlockKey, int]:
        """Pin those that can be read, each once: their slots."""
        by_key, states = self._by_key, self._states
        here = [key for key in keys if key in by_key]
        present = {key: slot for key in here if states[slot := by_key[key]] in READABLE}
        self._withdraw(self._unused(present.values()))
        self._pin(present.values())
        return present

    def pin_again(self, slots: Sequence[int]) -> None:
        """Another pin of each of these slots, which are pinned."""
        self._pin(slots)

    def unpin(self, slots: Iterable[int]) -> None:
        """Drop one pin of each slot, given in prompt order: a chain's end is of no use without its start, so the end
        becomes the older for eviction.
        """
        pins, shared, last = self._pin_counts, list[int](), list[int]()
        for slot in reversed(list(slots)):
            left = pins[slot] = pins[slot] - 1
            (shared if left else last).append(slot)
        self._pins -= len(shared) + len(last)
        self._move(shared, SlotEvent.UNPIN)
        self._move(last, SlotEvent.LAST_UNPIN)
        self._offer(self._unused(last))
        for slot in [slot for slot in last if self._states[slot] is SlotState.FREE]:
            self._empty(slot)

    def distrust(self, key: BlockKey) -> bool:
        """Forget a readable block: at once, or when its last pin goes. False when it is not here."""
        slot = self._by_key.get(key)
        if slot is None or self._states[slot] not in READABLE:
            return False
        self._withdraw(self._unused([slot]))
        del self._by_key[key]
        self._move([slot], SlotEvent.DISTRUST)
        if self._states[slot] is SlotState.FREE:
            self._empty(slot)
        self._distrusted_blocks += 1
        self._tell([key], False)
        return True

    def drop(self, key: BlockKey) -> bool:
        """Evict a block though nobody needs its room. False when it is not here, or in use."""
        slot = self._by_key.get(key)
        if slot is None or self._states[slot] is not SlotState.COMMITTED:
            return False
        self._withdraw([slot])
        self._evict_one(slot, "dropped")
        return True

    def statistics(self) -> SlotStatistics:
        """A truthful snapshot."""
        free, writing, committed = len(self._free), sum(map(len, self._written_by.values())), len(self._shares)
        return SlotStatistics(
            free=free,
            writing=writing,
            committed=committed,
            pinned=self._used - writing - committed,
            pins=self._pins,
            committed_blocks=self._committed_blocks,
            distrusted_blocks=self._distrusted_blocks,
            evicted=dict(self._evicted),
        )

    def check(self) -> None:
        """Assert the invariants. Costs time in proportion to the slots: for tests."""
        slots = [self.look(slot) for slot in range(len(self._states))]
        counts = Counter(self._states)
        assert sorted(self._free) == [i for i, e in enumerate(slots) if e.state is SlotState.FREE]
        assert len(self._shares) == counts[SlotState.COMMITTED]
        self._shares.check(Counter(entry.tenant for entry in slots if entry.state is not SlotState.FREE))
        assert self._pins == sum(self._pin_counts)
        for index, entry in enumerate(slots):
            assert (entry.pins > 0) == (entry.state in (SlotState.PINNED, SlotState.DISTRUSTED))
            named = entry.state in (SlotState.WRITING, *READABLE)
            assert named == (self._by_key.get(entry.key) == index)
            if entry.owner is not None:
                assert self._written_by[entry.owner][entry.key] == index
        assert sum(map(len, self._written_by.values())) == counts[SlotState.WRITING]

    def __repr__(self) -> str:
        seen = self.statistics()
        states = ("free", "writing", "committed", "pinned")
        counts = (f"{name}={count}" for name in states if (count := getattr(seen, name)))
        return f"<SlotTable {' '.join(counts)} pins={self._pins}>"

    @property
    def _used(self) -> int:
        return len(self._states) - len(self._free)

    def _unused(self, slots: Iterable[int]) -> list[int]:
        """Those that are on offer, or are to be."""
        states = self._states
        return [slot for slot in slots if states[slot] is SlotState.COMMITTED]

    def _pin(self, slots: Collection[int]) -> None:
        """Slots that are not on offer."""
        self._move(slots, SlotEvent.PIN)
        pins = self._pin_counts
        for slot in slots:
            pins[slot] += 1
        self._pins += len(slots)

    def _take(self, count: int) -> list[int]:
        """Up to `count` free slots."""
        first = max(0, len(self._free) - count)
        taken = self._free[first:][::-1]
        del self._free[first:]
        return taken

    def _start_writing(self, reserved: dict[BlockKey, int], origin: Origin) -> None:
        if not reserved:
            return
        self._move(reserved.values(), SlotEvent.RESERVE)
        keys, origins = self._keys, self._origins
        for key, slot in reserved.items():
            keys[slot], origins[slot] = key, origin
        self._shares.hold(origin.tenant, len(reserved))
        self._by_key.update(reserved)
        self._written_by.setdefault(origin.owner, {}).update(reserved)

    def _no_more_written(self, keys: Iterable[BlockKey], owner: Owner) -> dict[BlockKey, int]:
        """Those of the blocks that the owner was writing."""
        written = self._written_by.get(owner, {})
        return {key: written.pop(key) for key in keys if key in written}

    def _evict_one(self, slot: int, reason: EvictionReason) -> None:
        """Of a block that is not on offer any more."""
        self._move([slot], SlotEvent.EVICT)
        key = self._keys[slot]
        self._vacate(slot)
        self._evicted[reason] += 1
        self._tell([key], False)

    def _touch(self, keys: Sequence[BlockKey]) -> None:
        """These count as used now: those that are here."""
        by_key = self._by_key
        here = dict.fromkeys(by_key[key] for key in keys if key in by_key)
        unused = self._unused(reversed(here))
        self._withdraw(unused)
        self._offer(unused)

    def _offer(self, slots: Sequence[int]) -> None:
        for tenant, held in groupby(slots, self._tenant):
            offered = list(held)
            self._shares.offer(tenant, offered, [self._keys[slot] for slot in offered])

    def _withdraw(self, slots: Sequence[int]) -> None:
        for tenant, held in groupby(slots, self._tenant):
            self._shares.withdraw(tenant, held)

    def _tenant(self, slot: int) -> Tenant:
        return self._origins[slot].tenant

    def _vacate(self, slot: int) -> None:
        del self._by_key[self._keys[slot]]
        self._empty(slot)

    def _empty(self, slot: int) -> None:
        self._shares.give_back(self._tenant(slot))
        self._keys[slot], self._origins[slot], self._checksums[slot] = b"", NOBODY, 0
        self._free.append(slot)
