"""The ledger against a naive model: a list of open leases, summed anew for every question."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from routing.ledger import NOTHING, Lease, Ledger, Reserved
from routing.router import Decision, RouteRequest

REPLICAS = ["a", "b", "c"]
replicas = st.sampled_from(REPLICAS)


@dataclass
class OpenLease:
    """What the model remembers: who owes what."""

    lease: Lease
    owed: dict[str, Reserved]


class LedgerMachine(RuleBasedStateMachine):
    """Reserve, give prefill back, release and lose replicas in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.open: list[OpenLease] = []
        self.released = 0

    @rule(
        decode=replicas,
        prefill=st.none() | replicas,
        prompt=st.integers(1, 50),
        new=st.integers(1, 9),
        n=st.integers(1, 3),
    )
    def reserve(self, decode: str, prefill: str | None, prompt: int, new: int, n: int) -> None:
        if prefill == decode:
            return
        lease = self.ledger.reserve(Decision(decode, prefill, ""), RouteRequest("r", prompt, new, outputs=n))
        owed = {decode: Reserved(0 if prefill else prompt, new * n, n)}
        if prefill:
            owed[prefill] = Reserved(prompt, 0, 1)
        self.open.append(OpenLease(lease, owed))

    @rule(data=st.data())
    def prefill_done(self, data: st.DataObject) -> None:
        if not self.open:
            return
        entry = data.draw(st.sampled_from(self.open))
        self.ledger.prefill_done(entry.lease)
        if entry.lease.prefill:
            entry.owed.pop(entry.lease.prefill, None)
        elif entry.lease.decode in entry.owed:
            decode = entry.owed[entry.lease.decode]
            entry.owed[entry.lease.decode] = Reserved(0, decode.decode_tokens, decode.requests)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if not self.open:
            return
        entry = data.draw(st.sampled_from(self.open))
        self.ledger.release(entry.lease)
        self.open.remove(entry)
        self.released += 1
        self.ledger.prefill_done(entry.lease)

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.ledger.check()
        loads = {r: sum((e.owed.get(r, NOTHING) for e in self.open), NOTHING) for r in REPLICAS}
        assert {r: self.ledger.load(r) for r in REPLICAS} == loads
        statistics = self.ledger.statistics()
        assert statistics.open_leases == len(self.open)
        assert statistics.released == self.released
        assert statistics.reserved == sum(loads.values(), NOTHING)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase
