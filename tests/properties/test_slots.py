"""The slot table against a naive model: a dict of blocks, without slots, policy or counters."""

from dataclasses import dataclass, field
from itertools import takewhile

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvtransfer.eviction.lru import LeastRecentlyUsed
from kvtransfer.slots import SlotTable

SLOTS = 4
keys = st.sampled_from([bytes([i]) * 4 for i in range(7)])
owners = st.integers(1, 3)


@dataclass
class Block:
    slot: int
    owner: int | None
    checksum: int = 0
    pins: int = 0
    labelled: bool = False


@dataclass
class Model:
    blocks: dict[bytes, Block] = field(default_factory=dict)
    distrusted: list[Block] = field(default_factory=list)

    @property
    def used(self) -> int:
        return len(self.blocks) + len(self.distrusted)

    @property
    def evictable(self) -> list[bytes]:
        return [key for key, block in self.blocks.items() if block.owner is None and not block.pins]


class SlotTableAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(SLOTS, LeastRecentlyUsed())
        self.model = Model()

    @rule(wanted=st.lists(keys, max_size=4), owner=owners)
    def reserve(self, wanted: list[bytes], owner: int) -> None:
        reservation = self.table.reserve(wanted, owner)
        full = 0
        for key, slot in zip(wanted, reservation.slots, strict=True):
            if slot is not None:
                self._make_way(slot)
                assert key not in self.model.blocks
                self.model.blocks[key] = Block(slot, owner)
            elif key not in self.model.blocks:
                full += 1
        assert reservation.full >= full
        if full:
            assert not self.model.evictable
            assert self.model.used == SLOTS

    def _make_way(self, slot: int) -> None:
        """A slot that was in use can only have been given away by eviction."""
        before = [key for key, block in self.model.blocks.items() if block.slot == slot]
        for key in before:
            assert key in self.model.evictable
            del self.model.blocks[key]
        assert all(block.slot != slot for block in self.model.distrusted)

    @rule(key=keys, owner=owners, checksum=st.integers(0, 2**64 - 1))
    def commit(self, key: bytes, owner: int, checksum: int) -> None:
        block = self.model.blocks.get(key)
        is_writer = block is not None and block.owner == owner
        assert (self.table.commit(key, checksum, owner) is not None) == is_writer
        if block is not None and is_writer:
            block.owner, block.checksum = None, checksum

    @rule(key=keys, owner=owners)
    def abandon(self, key: bytes, owner: int) -> None:
        block = self.model.blocks.get(key)
        is_writer = block is not None and block.owner == owner
        assert self.table.abandon(key, owner) == is_writer
        if is_writer:
            del self.model.blocks[key]

    @rule(owner=owners)
    def release_owner(self, owner: int) -> None:
        written = [key for key, block in self.model.blocks.items() if block.owner == owner]
        assert sorted(self.table.release_owner(owner)) == sorted(written)
        for key in written:
            del self.model.blocks[key]

    @rule(key=keys)
    def pin(self, key: bytes) -> None:
        block = self.model.blocks.get(key)
        slot = self.table.pin(key)
        if block is None or block.owner is not None:
            assert slot is None
            return
        assert slot == block.slot
        assert self.table.checksum(block.slot) == block.checksum
        block.pins += 1

    @precondition(lambda self: self._pinned())
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self._pinned()))
        self.table.unpin([block.slot])
        block.pins -= 1
        if not block.pins and block in self.model.distrusted:
            self.model.distrusted.remove(block)

    @rule(key=keys)
    def distrust(self, key: bytes) -> None:
        block = self.model.blocks.get(key)
        is_here = block is not None and block.owner is None
        assert self.table.distrust(key) == is_here
        if block is not None and is_here:
            del self.model.blocks[key]
            if block.pins:
                self.model.distrusted.append(block)

    @rule(key=keys)
    def label(self, key: bytes) -> None:
        block = self.model.blocks.get(key)
        takes_it = block is not None and block.owner is None and not block.labelled
        assert self.table.label(key, key[0]) == takes_it
        if block is not None and takes_it:
            block.labelled = True

    @rule(wanted=st.lists(keys, max_size=4))
    def find_by_label(self, wanted: list[bytes]) -> None:
        blocks = [self.model.blocks.get(key) for key in wanted]
        found = list(takewhile(lambda pair: pair[1] is not None and pair[1].labelled, zip(wanted, blocks, strict=True)))
        assert self.table.labelled(key[0] for key in wanted) == [key for key, _ in found]

    def _pinned(self) -> list[Block]:
        return [b for b in (*self.model.blocks.values(), *self.model.distrusted) if b.pins]

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        statistics = self.table.statistics()
        blocks = list(self.model.blocks.values())
        assert statistics.writing == sum(block.owner is not None for block in blocks)
        assert statistics.committed == len(self.model.evictable)
        assert statistics.pinned == len(self._pinned())
        assert statistics.pins == sum(block.pins for block in self._pinned())
        assert statistics.free == SLOTS - self.model.used
        assert set(self.table.readable()) == {key for key, block in self.model.blocks.items() if block.owner is None}
        for key, block in self.model.blocks.items():
            assert self.table.is_being_written(key) == (block.owner is not None)


TestSlotTable = SlotTableAgainstDict.TestCase
