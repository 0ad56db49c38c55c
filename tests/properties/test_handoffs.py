"""The hand-off table against a naive model that recomputes everything from what happened."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvtransfer.errors import RequestRefused
from kvtransfer.handoffs import HandoffPlan, HandoffTable
from kvtransfer.transport import HandoffState

MAX_HANDOFFS = 3
TTL_S = 10.0
KEYS = [bytes([i]) * 4 for i in range(4)]
keys = st.sampled_from(KEYS)
ids = st.sampled_from(["a", "b", "c", "d", "e"])
producers = st.integers(1, 2)


@dataclass
class Handoff:
    keys: list[bytes]
    producer: int
    missing: set[bytes]
    expires_at: float
    state: HandoffState = HandoffState.PENDING
    concluded: bool = False
    collected: bool = False


class HandoffTableAgainstDict(RuleBasedStateMachine):
    """Blocks are absent, being written or committed; committed blocks stay. Slot numbers are positions in KEYS."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table = HandoffTable(MAX_HANDOFFS, TTL_S)
        self.committed: set[bytes] = set()
        self.writing: set[bytes] = set()
        self.pins = [0] * len(KEYS)
        self.handoffs: dict[str, Handoff] = {}
        self.waiters: dict[str, int] = {}
        self.unwanted: dict[str, float] = {}

    def _apply(self, plan: HandoffPlan) -> None:
        for slot in plan.pin:
            self.pins[slot] += 1
        for slot in plan.unpin:
            self.pins[slot] -= 1

    def _pin(self, key: bytes) -> int:
        self.pins[KEYS.index(key)] += 1
        return KEYS.index(key)

    @rule(handoff_id=ids, producer=producers, announced=st.lists(keys, max_size=4, unique=True))
    def announce(self, handoff_id: str, producer: int, announced: list[bytes]) -> None:
        held = {key: self._pin(key) for key in announced if key in self.committed}
        known = self.handoffs.get(handoff_id)
        is_open = known is not None and known.state is HandoffState.PENDING
        if known is None and len(self.handoffs) >= MAX_HANDOFFS:
            done = next((i for i, h in self.handoffs.items() if self._is_done(i, h)), None)
            is_open = done is None
            self.handoffs.pop(done or "", None)
        if is_open:
            with pytest.raises(RequestRefused):
                self.table.announce(handoff_id, producer, announced, held, self.now)
            for slot in held.values():
                self.pins[slot] -= 1
            return
        self._apply(self.table.announce(handoff_id, producer, announced, held, self.now))
        self.handoffs.pop(handoff_id, None)
        missing = set(announced) - self.committed
        handoff = Handoff(announced, producer, missing, self.now + TTL_S)
        handoff.state = HandoffState.PENDING if missing else HandoffState.READY
        handoff.collected = self.unwanted.pop(handoff_id, None) is not None and handoff_id not in self.waiters
        self.handoffs[handoff_id] = handoff

    def _is_done(self, handoff_id: str, handoff: Handoff) -> bool:
        return handoff.collected and handoff.state is not HandoffState.PENDING and handoff_id not in self.waiters

    @rule(key=keys)
    def start_writing(self, key: bytes) -> None:
        if key not in self.committed:
            self.writing.add(key)

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(sorted(self.writing)), min_size=1, unique=True))
        self.writing.difference_update(keys)
        self.committed.update(keys)
        self._apply(self.table.committed({key: KEYS.index(key) for key in keys}))
        for handoff in self.handoffs.values():
            if handoff.state is HandoffState.PENDING:
                handoff.missing.difference_update(keys)
                if not handoff.missing:
                    handoff.state = HandoffState.READY

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.writing)))
        self.writing.remove(key)
        self._apply(self.table.lost(key))
        for handoff_id, handoff in self.handoffs.items():
            if handoff.concluded and key in handoff.missing:
                self._fail(handoff_id, handoff)

    @rule(handoff_id=ids)
    def conclude(self, handoff_id: str) -> None:
        self._apply(self.table.conclude(handoff_id, self.writing.__contains__))
        self._model_conclude(handoff_id)

    @rule(producer=producers)
    def lose_producer(self, producer: int) -> None:
        self._apply(self.table.conclude_all(producer, self.writing.__contains__))
        for handoff_id, handoff in self.handoffs.items():
            if handoff.producer == producer:
                self._model_conclude(handoff_id)

    def _model_conclude(self, handoff_id: str) -> None:
        handoff = self.handoffs.get(handoff_id)
        if handoff is not None and handoff.state is HandoffState.PENDING:
            handoff.concluded = True
            if not handoff.missing <= self.writing:
                self._fail(handoff_id, handoff)

    def _fail(self, handoff_id: str, handoff: Handoff) -> None:
        if handoff.state is HandoffState.PENDING:
            handoff.state = HandoffState.FAILED
            handoff.collected |= handoff_id not in self.waiters

    @rule(handoff_id=ids)
    def join(self, handoff_id: str) -> None:
        self.table.join(handoff_id)
        self.waiters[handoff_id] = self.waiters.get(handoff_id, 0) + 1

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def leave_and_collect(self, data: st.DataObject) -> None:
        handoff_id = data.draw(st.sampled_from(sorted(self.waiters)))
        self.table.leave(handoff_id)
        self.waiters[handoff_id] -= 1
        if not self.waiters[handoff_id]:
            del self.waiters[handoff_id]
        self._apply(self.table.collect(handoff_id, self.now))
        if handoff_id in self.waiters:
            return
        if handoff_id in self.handoffs:
            self.handoffs[handoff_id].collected = True
        else:
            self.unwanted[handoff_id] = self.now + TTL_S
            if len(self.unwanted) > MAX_HANDOFFS:
                del self.unwanted[next(iter(self.unwanted))]

    @rule(seconds=st.sampled_from([0.0, 4.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._apply(self.table.expire(self.now))
        self.unwanted = {i: at for i, at in self.unwanted.items() if at > self.now}
        for handoff_id, handoff in list(self.handoffs.items()):
            if handoff.expires_at <= self.now:
                self._fail(handoff_id, handoff)
                if handoff_id not in self.waiters:
                    del self.handoffs[handoff_id]

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        for handoff_id in "abcde":
            found, handoff = self.table.find(handoff_id), self.handoffs.get(handoff_id)
            assert (found is None) == (handoff is None)
            if found is not None and handoff is not None:
                assert (found.state, list(found.keys)) == (handoff.state, handoff.keys)
        uncollected = [handoff for handoff in self.handoffs.values() if not handoff.collected]
        assert self.table.open_count == len(uncollected)
        assert self.pins == [sum(key in set(h.keys) - h.missing for h in uncollected) for key in KEYS]


TestHandoffTable = HandoffTableAgainstDict.TestCase
