"""The ledger against a naive model: a list of open leases and a set of promises, summed anew for every question."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from routing.ledger import NOTHING, Lease, Ledger, Reserved
from routing.router import Decision, RouteRequest, Work

REPLICAS = ["a", "b", "c"]
replicas = st.sampled_from(REPLICAS)


class Index:
    """Remembers what is promised, by number."""

    def __init__(self) -> None:
        self.promised: dict[int, tuple[str, Sequence[int]]] = {}
        self.retracted: list[int] = []
        self._next = 0

    def promise(self, replica_id: str, keys: Sequence[int], until: float) -> int:
        self._next += 1
        self.promised[self._next] = (replica_id, keys)
        return self._next

    def retract(self, promise: int) -> None:
        self.retracted.append(promise)
        del self.promised[promise]


@dataclass
class OpenLease:
    """What the model remembers: who owes what, and what was promised while the prompt is not computed."""

    lease: Lease
    work: Work
    owed: dict[str, Reserved]
    promise: tuple[str, Sequence[int]] | None
    computing: str | None


@dataclass
class Model:
    """Everything the ledger should know."""

    open: list[OpenLease] = field(default_factory=list)
    promised: list[tuple[str, Sequence[int]]] = field(default_factory=list)
    released: int = 0

    def reserved(self, replica_id: str) -> Reserved:
        return sum((entry.owed.get(replica_id, NOTHING) for entry in self.open), NOTHING)


class LedgerMachine(RuleBasedStateMachine):
    """Reserve, give prefill back, release and lose replicas in any order, as time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index()
        self.ledger = Ledger(self.index)
        self.model = Model()
        self.now = 0.0
        self.count = 0

    @rule(decode=replicas, prefill=st.none() | replicas, prompt=st.integers(1, 50), new=st.integers(1, 9))
    def reserve_the_most_it_may_need(self, decode: str, prefill: str | None, prompt: int, new: int) -> None:
        if prefill != decode:
            self._reserve(decode, prefill, RouteRequest("r", prompt, new, outputs=2), None)

    @rule(
        decode=replicas,
        prefill=st.none() | replicas,
        tokens=st.integers(1, 50),
        output=st.integers(1, 9),
        blocks=st.integers(0, 9),
        n=st.integers(1, 3),
    )
    def reserve_what_is_predicted(
        self, decode: str, prefill: str | None, tokens: int, output: int, blocks: int, n: int
    ) -> None:
        if prefill != decode:
            self.count += 1
            work = Work(tokens, tokens / 64, output, tokens + output, blocks, (self.count, 1), (self.count, 2))
            self._reserve(decode, prefill, RouteRequest("r", 99, 99, outputs=n), work)

    def _reserve(self, decode: str, prefill: str | None, request: RouteRequest, work: Work | None) -> None:
        lease = self.ledger.reserve(Decision(decode, prefill, "", work=work), request, self.now)
        n = request.outputs
        work = work or Work(request.prompt_tokens, 0.0, request.max_tokens * n, request.prompt_tokens, 0)
        computing = Reserved(work.prefill_tokens, prefill_s=work.prefill_s)
        decoding = Reserved(0, work.decode_tokens, n, 0.0, work.context_tokens, work.blocks)
        owed = {prefill: computing + Reserved(requests=1), decode: decoding} if prefill else {}
        promise = (prefill or decode, work.prefill_keys) if work.prefill_keys else None
        if promise:
            self.model.promised.append(promise)
        self.model.open.append(
            OpenLease(lease, work, owed or {decode: computing + decoding}, promise, prefill or decode)
        )

    @rule(data=st.data())
    def prefill_done(self, data: st.DataObject) -> None:
        if not self.model.open:
            return
        entry = data.draw(st.sampled_from(self.model.open))
        self.ledger.prefill_done(entry.lease, self.now)
        if entry.computing is None:
            return
        lease, work, entry.computing, entry.promise = entry.lease, entry.work, None, None
        if lease.prefill:
            del entry.owed[lease.prefill]
            if lease.decode in entry.owed and work.decode_keys:
                self.model.promised.append((lease.decode, work.decode_keys))
        else:
            owed = entry.owed[lease.decode]
            entry.owed[lease.decode] = Reserved(
                0, owed.decode_tokens, owed.requests, 0.0, owed.context_tokens, owed.blocks
            )

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if not self.model.open:
            return
        entry = data.draw(st.sampled_from(self.model.open))
        self.ledger.release(entry.lease, self.now)
        self.model.open.remove(entry)
        self.model.released += 1
        if entry.promise:
            self.model.promised.remove(entry.promise)
        self.ledger.prefill_done(entry.lease, self.now)

    @rule(replica_id=replicas)
    def lose_a_replica(self, replica_id: str) -> None:
        self.ledger.drop(replica_id)
        for entry in self.model.open:
            entry.owed.pop(replica_id, None)
            if entry.computing == replica_id:
                entry.computing = None

    @rule(seconds=st.floats(0, 2))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.ledger.check()
        for replica_id in REPLICAS:
            expected, found = self.model.reserved(replica_id), self.ledger.load(replica_id)
            assert found.prefill_s == pytest.approx(expected.prefill_s)
            assert (found.prefill_tokens, found.decode_tokens, found.requests) == (
                expected.prefill_tokens,
                expected.decode_tokens,
                expected.requests,
            )
            assert (found.context_tokens, found.blocks) == (expected.context_tokens, expected.blocks)
        statistics = self.ledger.statistics()
        assert statistics.open_leases == len(self.model.open)
        assert statistics.released == self.model.released
        assert statistics.replicas == sum(self.model.reserved(r) != NOTHING for r in REPLICAS)

    @invariant()
    def promises_are_those_of_open_leases_and_of_computed_prompts(self) -> None:
        assert sorted(self.index.promised.values()) == sorted(self.model.promised)

    @invariant()
    def a_backlog_never_exceeds_what_is_reserved_and_leaves_out_only_the_front_of_the_queue(self) -> None:
        for account in self.ledger.accounts.values():
            backlog_s = account.backlog_s(self.now)
            assert account.prefill_s - account.front_s <= backlog_s <= account.prefill_s


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase
