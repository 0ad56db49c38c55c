"""The slot table against a naive model: a dict of blocks, without slots, policy or counters."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvtransfer.eviction.choice import PolicyName
from kvtransfer.slot_records import Watermarks
from tests.support.slot_tables import slot_table

SLOTS = 7
WEIGHTS = {b"y": 2.0}
tenants = st.sampled_from([b"", b"x", b"y"])
keys = st.sampled_from([bytes([i]) * 4 for i in range(12)])
owners = st.integers(1, 3)


@dataclass
class Block:
    slot: int
    owner: int | None
    checksum: int = 0
    pins: int = 0
    tenant: bytes = b""
    since_s: float = 0.0


@dataclass
class Model:
    blocks: dict[bytes, Block] = field(default_factory=dict)
    distrusted: list[Block] = field(default_factory=list)

    @property
    def used(self) -> int:
        return len(self.blocks) + len(self.distrusted)

    def held(self, tenant: bytes) -> int:
        return sum(block.tenant == tenant for block in (*self.blocks.values(), *self.distrusted))

    @property
    def tenants(self) -> set[bytes]:
        return {block.tenant for block in (*self.blocks.values(), *self.distrusted)}

    @property
    def evictable(self) -> list[bytes]:
        return [key for key, block in self.blocks.items() if block.owner is None and not block.pins]


class SlotTableAgainstDict(RuleBasedStateMachine):
    policy: PolicyName

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[bytes] = []
        self.table = slot_table(SLOTS, self.policy, WEIGHTS, Watermarks(SLOTS - 2, SLOTS - 1), self._told)
        self.model = Model()
        self.leaving: list[Block] = []
        self.now = 0.0

    def _told(self, keys: Iterable[bytes], readable: bool) -> None:
        if not readable:
            self.gone.extend(keys)

    @rule(wanted=st.lists(keys, max_size=4), owner=owners, tenant=tenants)
    def reserve(self, wanted: list[bytes], owner: int, tenant: bytes) -> None:
        shares = self._shares(self.model.tenants | {tenant})
        self.now += 1.0
        reservation = self.table.reserve(wanted, owner, tenant, self.now)
        evicted_from = self._evicted()
        full = 0
        for key, slot in zip(wanted, reservation.slots, strict=True):
            if slot is not None:
                assert key not in self.model.blocks
                assert all(block.slot != slot for block in (*self.model.blocks.values(), *self.model.distrusted))
                self.model.blocks[key] = Block(slot, owner, tenant=tenant, since_s=self.now)
            elif key not in self.model.blocks:
                full += 1
        assert reservation.full >= full
        for other in evicted_from - {tenant}:
            assert self.model.held(other) >= shares[other], "pushed below its share"
        if full:
            assert self.model.used == SLOTS
            for key in self.model.evictable:
                other = self.model.blocks[key].tenant
                assert other != tenant
                assert self.model.held(other) <= shares[other]

    @precondition(lambda self: self.table.crowding)
    @rule(most=st.integers(1, SLOTS))
    def make_room(self, most: int) -> None:
        shares, evictable = self._shares(self.model.tenants), len(self.model.evictable)
        evicted = self.table.evict(min(most, self.table.crowding))
        assert evicted == len(self.gone) <= evictable
        for tenant in self._evicted():
            assert self.model.held(tenant) >= shares[tenant]

    @rule(most=st.integers(1, 3))
    def leave(self, most: int) -> None:
        """Blocks that are to be copied elsewhere are pinned, and nobody is pushed below its share by it."""
        shares, evictable = self._shares(self.model.tenants), set(self.model.evictable)
        leaving = self.table.leave(most)
        assert len(leaving) <= most
        for block in leaving:
            assert block.key in evictable
            held = self.model.blocks[block.key]
            assert (held.slot, held.tenant, held.checksum) == (block.slot, block.tenant, block.checksum)
            held.pins += 1
            self.leaving.append(held)
        for tenant in {block.tenant for block in leaving}:
            going = sum(block.tenant == tenant for block in leaving)
            assert self.model.held(tenant) - going >= shares[tenant]

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """It is evicted, unless somebody else has it pinned."""
        block = self.leaving.pop(data.draw(st.integers(0, len(self.leaving) - 1)))
        self.table.let_go(block.slot)
        block.pins -= 1
        if block in self.model.distrusted and not block.pins:
            self.model.distrusted.remove(block)
        elif block not in self.model.distrusted and not block.pins:
            (key,) = self.gone
            assert self.model.blocks[key] is block
        self._evicted()

    def _evicted(self) -> set[bytes]:
        """Only what was committed and unpinned may have gone; whose it was."""
        evicted_from = set()
        for key in self.gone:
            assert key in self.model.evictable
            evicted_from.add(self.model.blocks.pop(key).tenant)
        self.gone.clear()
        return evicted_from

    def _shares(self, tenants: set[bytes]) -> dict[bytes, int]:
        weights = {tenant: WEIGHTS.get(tenant, 1.0) for tenant in tenants}
        return {tenant: int((SLOTS - 2) / sum(weights.values()) * weight) for tenant, weight in weights.items()}

    @rule(wanted=st.lists(keys, max_size=4), owner=owners, checksum=st.integers(0, 2**60), keep=st.booleans())
    def commit(self, wanted: list[bytes], owner: int, checksum: int, keep: bool) -> None:
        """What is committed is pinned, until the caller unpins it."""
        own = self._written(wanted, owner)
        committed = self.table.commit(wanted, range(checksum, checksum + len(wanted)), owner)
        assert committed == {key: block.slot for key, block in own.items()}
        for position, key in enumerate(wanted):
            if key in own:
                own[key].owner, own[key].checksum, own[key].pins = None, checksum + position, 1
        if not keep:
            self.table.unpin(committed.values())
            for block in own.values():
                block.pins = 0

    @rule(wanted=st.lists(keys, max_size=4), owner=owners)
    def abandon(self, wanted: list[bytes], owner: int) -> None:
        own = self._written(wanted, owner)
        assert self.table.abandon(wanted, owner) == list(own)
        for key in own:
            del self.model.blocks[key]

    def _written(self, wanted: list[bytes], owner: int) -> dict[bytes, Block]:
        return {key: block for key, block in self._blocks(wanted) if block.owner == owner}

    def _blocks(self, wanted: list[bytes]) -> list[tuple[bytes, Block]]:
        return [(key, self.model.blocks[key]) for key in wanted if key in self.model.blocks]

    @rule(owner=owners)
    def release_owner(self, owner: int) -> None:
        written = [key for key, block in self.model.blocks.items() if block.owner == owner]
        assert sorted(self.table.release_owner(owner)) == sorted(written)
        for key in written:
            del self.model.blocks[key]

    @rule(wanted=st.lists(keys, max_size=4))
    def pin(self, wanted: list[bytes]) -> None:
        readable = set(self.table.readable())
        prefix = [block for _, block in self._blocks(list(takewhile(readable.__contains__, wanted)))]
        assert self.table.pin(wanted) == [block.slot for block in prefix]
        assert self.table.checksums([block.slot for block in prefix]) == [block.checksum for block in prefix]
        for block in prefix:
            block.pins += 1

    @rule(wanted=st.lists(keys, max_size=4))
    def pin_present(self, wanted: list[bytes]) -> None:
        present = {key: block for key, block in self._blocks(wanted) if block.owner is None}
        assert self.table.pin_present(wanted) == {key: block.slot for key, block in present.items()}
        for block in present.values():
            block.pins += 1

    @precondition(lambda self: self._read())
    @rule(data=st.data())
    def pin_again(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self._read()))
        if block not in self.model.distrusted:
            self.table.pin_again([block.slot])
            block.pins += 1

    @precondition(lambda self: self._read())
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        """Some pins of some blocks, and perhaps several of one."""
        pins = [b for b in self._read() for _ in range(b.pins - sum(leaving is b for leaving in self.leaving))]
        picked = data.draw(st.lists(st.integers(0, len(pins) - 1), min_size=1, max_size=4, unique=True))
        blocks = [pins[index] for index in picked]
        self.table.unpin([block.slot for block in blocks])
        for block in blocks:
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
            self.gone.remove(key)
            if block.pins:
                self.model.distrusted.append(block)

    @rule(key=keys)
    def drop(self, key: bytes) -> None:
        assert self.table.is_in_use(key) == (key in self.model.blocks and key not in self.model.evictable)
        assert self.table.drop(key) == (key in self.model.evictable)
        self._evicted()

    def _read(self) -> list[Block]:
        """Blocks with a pin that is not of their leaving."""
        return [b for b in self._pinned() if b.pins > sum(leaving is b for leaving in self.leaving)]

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
        oldest = self.table.oldest_writing()
        assert (None if oldest is None else oldest.since_s) == min(
            (block.since_s for block in blocks if block.owner is not None), default=None
        )


def machine_of(policy: PolicyName) -> type[RuleBasedStateMachine]:
    machine = type(f"SlotTable_{policy}", (SlotTableAgainstDict,), {"policy": policy})
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
    return machine


TestPrefixAware = machine_of("prefix_aware").TestCase
TestLru = machine_of("lru").TestCase
TestArc = machine_of("arc").TestCase
TestS3Fifo = machine_of("s3_fifo").TestCase
TestSieve = machine_of("sieve").TestCase
