"""The whole store against a naive model: owners come and go, blocks keep their bytes, nothing is held for nobody."""

import tempfile
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvtransfer.arena import Arena
from kvtransfer.checksum import block_checksum
from kvtransfer.disk.block_file import HEAD_BYTES
from kvtransfer.disk.folder import PART, BlockFolder
from kvtransfer.disk.table import DiskTable
from kvtransfer.disk.tier import DiskTier
from kvtransfer.errors import RequestRefused
from kvtransfer.eviction.choice import PolicyName, policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.net_changes import NetChanges
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState
from tests.fakes.disk_work import SteppedWork

SLOTS, SLOT_BYTES, PLACES = 5, 64, 4
KEYS = [bytes([i]) * 4 for i in range(8)]
keys = st.lists(st.sampled_from(KEYS), max_size=4)
ids = st.sampled_from(["a", "b", "c"])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class StoreAgainstDict(RuleBasedStateMachine):
    policy: PolicyName = "prefix_aware"

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        limits = StoreSettings(
            SLOTS * SLOT_BYTES,
            "unused",
            max_handoffs=2,
            handoff_ttl_s=10.0,
            high_watermark=0.8,
            low_watermark=0.6,
            tenant_weights={b"y": 2.0},
            eviction=self.policy,
        )
        self.store = Store(limits, self.clock)
        self.arena: Arena = self.store.attach(SLOT_BYTES)
        self.writing: dict[int, dict[bytes, int]] = {}  # by owner: key to slot
        self.pins: dict[int, Counter[bytes]] = {}
        self.gathered: dict[int, Counter[str]] = {}
        self.changes = NetChanges(self.store.readable, max_waiting_keys=3, max_taken_keys=2)
        self.store.follow(self.changes.note)
        self.watched: set[bytes] = set()

    def teardown(self) -> None:
        for owner in list(self.writing):
            self.store.release_owner(owner)
        self.clock.now += 100.0
        self.store.expire()
        self.store.check()
        assert self.store.slot_statistics().pins == 0
        assert self.store.slot_statistics().writing == 0
        self.store.close()

    def owner(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.writing)))

    @rule()
    def open_owner(self) -> None:
        if len(self.writing) < 3:
            owner = self.store.open_owner()
            self.writing[owner], self.pins[owner], self.gathered[owner] = {}, Counter(), Counter()

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def release_owner(self, data: st.DataObject) -> None:
        owner = self.owner(data)
        self.store.release_owner(owner)
        del self.writing[owner], self.pins[owner], self.gathered[owner]

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), wanted=keys, tenant=st.sampled_from([b"", b"x", b"y"]))
    def reserve(self, data: st.DataObject, wanted: list[bytes], tenant: bytes) -> None:
        owner = self.owner(data)
        slots = self.store.reserve(owner, wanted, tenant).slots
        taken = {slot for written in self.writing.values() for slot in written.values()}
        for key, slot in zip(wanted, slots, strict=True):
            if slot is not None:
                assert slot not in taken
                assert not any(key in written for written in self.writing.values())
                self.writing[owner][key] = slot
                taken.add(slot)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), wanted=keys)
    def write_and_commit(self, data: st.DataObject, wanted: list[bytes]) -> None:
        owner = self.owner(data)
        for key in wanted:
            if key in self.writing[owner]:
                self.arena.slot(self.writing[owner][key])[:] = key * (SLOT_BYTES // 4)
        checksums = [block_checksum(key * (SLOT_BYTES // 4)) for key in wanted]
        mine = [key for key in dict.fromkeys(wanted) if self.writing[owner].pop(key, None) is not None]
        assert self.store.commit(owner, wanted, checksums) == len(mine)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), wanted=keys)
    def abandon(self, data: st.DataObject, wanted: list[bytes]) -> None:
        owner = self.owner(data)
        mine = [key for key in dict.fromkeys(wanted) if self.writing[owner].pop(key, None) is not None]
        assert self.store.abandon(owner, wanted) == len(mine)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), wanted=keys)
    def pin(self, data: st.DataObject, wanted: list[bytes]) -> None:
        owner = self.owner(data)
        blocks = self.store.pin(owner, wanted)
        for key, block in zip(wanted, blocks, strict=False):
            content = bytes(self.arena.slot(block.slot))
            assert content == key * (SLOT_BYTES // 4)
            assert block_checksum(content) == block.checksum
            self.pins[owner][key] += 1

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), wanted=keys)
    def unpin(self, data: st.DataObject, wanted: list[bytes]) -> None:
        owner = self.owner(data)
        dropped = Counter(wanted) & self.pins[owner]
        assert self.store.unpin(owner, wanted) == dropped.total()
        self.pins[owner] -= dropped

    @rule(wanted=keys)
    def distrust(self, wanted: list[bytes]) -> None:
        self.store.distrust(wanted)
        assert not self.store.pin(
            self.store.open_owner(), [k for k in wanted if not self.store.is_being_written(k)][:1]
        )

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), handoff_id=ids, wanted=keys)
    def announce(self, data: st.DataObject, handoff_id: str, wanted: list[bytes]) -> None:
        known = self.store.find(handoff_id)
        may = len(set(wanted)) == len(wanted) and (known is None or known.state is not HandoffState.PENDING)
        try:
            self.store.announce(self.owner(data), handoff_id, wanted)
        except RequestRefused:
            assert not may or known is None
        else:
            assert may

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), handoff_id=ids)
    def conclude(self, data: st.DataObject, handoff_id: str) -> None:
        self.store.conclude(self.owner(data), handoff_id)
        view = self.store.find(handoff_id)
        if view is not None and view.state is HandoffState.PENDING:
            assert any(self.store.is_being_written(key) for key in view.keys)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), handoff_id=ids)
    def wait_and_collect(self, data: st.DataObject, handoff_id: str) -> None:
        owner = self.owner(data)
        self.store.join(handoff_id)
        view = self.store.find(handoff_id)
        if view is not None:
            self.gathered[owner][handoff_id] += len(self.store.gather(owner, handoff_id, view.keys))
        self.store.leave(handoff_id)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), handoff_id=ids)
    def release_handoff(self, data: st.DataObject, handoff_id: str) -> None:
        owner = self.owner(data)
        assert self.store.release_handoff(owner, handoff_id) == self.gathered[owner].pop(handoff_id, 0)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.store.expire()

    @rule(wanted=keys)
    def label(self, wanted: list[bytes]) -> None:
        readable = set(self.store.readable())
        before = {key for key in wanted if self.store.label_of(key) is not None}
        assert self.store.label(wanted, [key[0] for key in wanted]) == len((set(wanted) & readable) - before)
        found = self.store.labelled([key[0] for key in wanted])
        assert found == list(takewhile(lambda key: key in readable, wanted))

    @rule()
    def make_room(self) -> None:
        crowding = self.store.crowding
        evictable = self.store.slot_statistics().committed
        assert self.store.make_room(crowding) <= min(crowding, evictable)

    @rule()
    def watch(self) -> None:
        while (change := self.changes.take()) is not None:
            known = set() if change.snapshot else self.watched
            assert not known & set(change.appeared)
            assert known >= set(change.gone)
            self.watched = (known | set(change.appeared)) - set(change.gone)
        assert self.watched == set(self.store.readable())

    @invariant()
    def agrees(self) -> None:
        self.store.check()
        assert self.store.slot_statistics().writing == sum(map(len, self.writing.values()))


class StoreWithDiskAgainstDict(StoreAgainstDict):
    """The same, over a disk of four files whose threads take a step when the machine says so."""

    policy = "arc"

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="baton-test-")
        self.folder = BlockFolder.claim(Path(self.temporary.name), "namespace")
        self.writer, self.reader = SteppedWork(3), SteppedWork(2)
        self.store.use_disk(self.tier(), [])

    def tier(self) -> DiskTier:
        table = DiskTable(PLACES, TenantShares(PLACES, policy_maker("lru", PLACES)))
        return DiskTier(self.folder, table, self.writer, self.reader)

    def teardown(self) -> None:
        while self.writer.step() or self.reader.step():
            pass
        files = {path.name for path in self.folder.folder.glob("??/*")}
        assert self.store.disk is not None
        assert files == {key.hex() for key in self.store.disk.readable()}
        again = BlockFolder(self.folder.folder, -1)
        assert {head.key for head in again.scan(SLOT_BYTES)} <= self.store.disk.readable()
        super().teardown()
        self.folder.close()
        self.temporary.cleanup()

    @precondition(lambda self: self.writer.is_busy)
    @rule()
    def disk_writes(self) -> None:
        self.writer.step()

    @precondition(lambda self: self.reader.is_busy)
    @rule()
    def disk_reads(self) -> None:
        self.reader.step()

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def hold(self, data: st.DataObject, key: bytes) -> None:
        """What is on disk comes back, is pinned at once, and has the bytes it had."""
        owner = self.owner(data)
        before = self.store.is_in_arena(key)
        assert self.store.hold(owner, key) or not before
        while self.reader.step():
            pass
        if before or self.store.is_in_arena(key):
            assert self.store.release_handoff(owner, "") >= 1
            self.gathered[owner].pop("", None)

    @rule(data=st.data())
    def a_bit_flips(self, data: st.DataObject) -> None:
        files = sorted(path for path in self.folder.folder.glob("??/*") if not path.name.endswith(PART))
        if files:
            path = data.draw(st.sampled_from(files))
            flipped = bytearray(path.read_bytes())
            flipped[data.draw(st.sampled_from([0, 20, HEAD_BYTES, -1]))] ^= 1
            path.write_bytes(flipped)


TestStore = StoreAgainstDict.TestCase
TestStore.settings = settings(StoreAgainstDict.TestCase.settings, stateful_step_count=40)
TestStoreWithDisk = StoreWithDiskAgainstDict.TestCase
TestStoreWithDisk.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_second_slot_size_is_refused() -> None:
    store = Store(StoreSettings(1024, "unused"))
    assert store.attach(64).slots == 16
    with pytest.raises(RequestRefused, match="have 64 bytes, not 128"):
        store.attach(128)
    store.close()
