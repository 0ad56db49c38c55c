"""Admission against a naive model: lists, searched and summed anew for every question."""

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cluster.coordinator.admission.fair_class import QUANTUM_TOKENS, FairClass
from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionQueue, AdmissionSettings
from cluster.coordinator.admission.ticket import Ticket
from cluster.errors import InvalidRequest, Overloaded
from routing.router import Predicted

TENANTS = [b"", b"a", b"b"]
WEIGHTS = {b"a": 2.0}
MAX_OUTPUTS, MAX_REQUESTS, MAX_TOKENS, MAX_WAIT_S = 6, 5, 6_000, 8.0
SETTINGS = AdmissionSettings(MAX_OUTPUTS, MAX_WAIT_S, LineSettings(MAX_REQUESTS, MAX_TOKENS, WEIGHTS))

PREDICTED = st.none() | st.builds(
    lambda queue_s, room_s: Predicted(queue_s, 0.1, 0.0, 0.1, 0.01, 1, 0, room_s, 1.0 + room_s if room_s else 0.5),
    st.floats(0, 20),
    st.just(0.0) | st.floats(0, 20),
)


@dataclass
class Model:
    """What admission should know."""

    waiting: list[Ticket] = field(default_factory=list)
    inside: list[Ticket] = field(default_factory=list)
    unstarted: list[Ticket] = field(default_factory=list)
    doorway: Ticket | None = None
    ahead: Predicted | None = None
    placed: Predicted | None = None

    def opens_to(self, ticket: Ticket) -> bool:
        if not self.fits_inside(ticket):
            return False
        longest_s = min(MAX_WAIT_S, ticket.longest_s)
        ahead = self.ahead
        return not self.inside or ahead is None or (ahead.queue_s <= longest_s / 4 and not ahead.room_s)

    def goes_at_once(self, ticket: Ticket) -> bool:
        if self.waiting:
            return False
        has_little = self.placed is None or (self.placed.queue_s <= MAX_WAIT_S / 8 and self.placed.crowd <= 0.9)
        hurries = ticket.longest_s < MAX_WAIT_S
        return self.fits_inside(ticket) if has_little and not hurries else self.opens_to(ticket)

    def fits_inside(self, ticket: Ticket) -> bool:
        return sum(each.outputs for each in self.inside) + ticket.outputs <= MAX_OUTPUTS

    def goes(self, ticket: Ticket) -> None:
        self.inside.append(ticket)
        self.unstarted.append(ticket)

    def fits(self) -> bool:
        tokens = sum(each.tokens for each in self.waiting)
        return len(self.waiting) <= MAX_REQUESTS and (len(self.waiting) <= 1 or tokens <= MAX_TOKENS)


class AdmissionMachine(RuleBasedStateMachine):
    """Arrive, go, be placed, start and leave in any order, as time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = AdmissionQueue(SETTINGS, lambda _ticket, _now: self.model.ahead)
        self.model = Model()
        self.now = 0.0

    @rule(
        tokens=st.integers(1, 4_000),
        outputs=st.integers(1, MAX_OUTPUTS + 1),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from(TENANTS),
        longest_s=st.sampled_from([inf, 2.0]),
    )
    def arrive(self, tokens: int, outputs: int, priority: int, tenant: bytes, longest_s: float) -> None:
        model, ticket = self.model, Ticket(tokens, outputs, self.now, priority, tenant, longest_s)
        at_once = model.goes_at_once(ticket)
        try:
            arrival = self.queue.arrive(ticket, self.now)
        except InvalidRequest:
            assert outputs > MAX_OUTPUTS
            return
        except Overloaded:
            assert not at_once
            return
        assert outputs <= MAX_OUTPUTS
        assert arrival.goes == at_once
        if at_once:
            model.goes(ticket)
            return
        for other in arrival.crowded_out:
            assert other.priority >= priority
            assert (other.priority, other.tenant) != (priority, tenant)
            model.waiting.remove(other)
        model.waiting.append(ticket)

    @rule()
    def release(self) -> None:
        model, ticket = self.model, self.queue.release(self.now)
        if ticket is None:
            nexts = self._nexts()
            assert model.doorway or not nexts or not all(model.opens_to(each) for each in nexts)
            return
        assert model.doorway is None
        assert ticket in self._nexts()
        assert model.opens_to(ticket)
        model.waiting.remove(ticket)
        model.goes(ticket)
        model.doorway = ticket

    @precondition(lambda self: self.model.inside)
    @rule(data=st.data(), predicted=PREDICTED)
    def route(self, data: st.DataObject, predicted: Predicted | None) -> None:
        ticket = self.model.doorway or data.draw(st.sampled_from(self.model.inside))
        self.queue.routed(ticket, predicted)
        self.model.doorway, self.model.placed = None, predicted

    @rule(ahead=PREDICTED)
    def foresee(self, ahead: Predicted | None) -> None:
        self.model.ahead = ahead

    @precondition(lambda self: self.model.unstarted)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.model.unstarted))
        if ticket is not self.model.doorway:
            self.queue.started(ticket)
            self.model.unstarted.remove(ticket)

    @precondition(lambda self: self.model.inside or self.model.waiting)
    @rule(data=st.data(), times=st.integers(1, 2))
    def leave(self, data: st.DataObject, times: int) -> None:
        model = self.model
        ticket = data.draw(st.sampled_from(model.inside + model.waiting))
        for _ in range(times):
            self.queue.leave(ticket)
        for its in (model.inside, model.waiting, model.unstarted):
            if ticket in its:
                its.remove(ticket)
        if ticket is model.doorway:
            model.doorway = None

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def agrees(self) -> None:
        self.queue.check()
        model, told = self.model, self.queue.statistics()
        assert model.fits()
        assert told.in_flight == sum(each.outputs for each in model.inside)
        wait_s = self.queue.opens_in_s(self.now)
        assert wait_s is None or (wait_s > 0 and model.waiting)
        priorities = {each.priority for each in model.waiting}
        of = {p: [each for each in model.waiting if each.priority == p] for p in priorities}
        assert told.waiting_requests == {p: len(tickets) for p, tickets in of.items()}
        assert told.waiting_tokens == {p: sum(each.tokens for each in tickets) for p, tickets in of.items()}

    def _nexts(self) -> list[Ticket]:
        """Each tenant's oldest in the soonest class."""
        soonest = min((each.priority for each in self.model.waiting), default=0)
        oldest: dict[bytes, Ticket] = {}
        for each in self.model.waiting:
            if each.priority == soonest:
                oldest.setdefault(each.tenant, each)
        return list(oldest.values())


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@settings(max_examples=100, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.1, 1.0, 3.0]), min_size=2, max_size=4),
    sizes=st.lists(st.lists(st.integers(1, 5_000), min_size=20, max_size=40), min_size=4, max_size=4),
)
def test_tenants_that_all_wait_get_tokens_by_their_weights(weights: list[float], sizes: list[list[int]]) -> None:
    its = FairClass()
    for number, weight in enumerate(weights):
        for tokens in sizes[number]:
            its.add(Ticket(tokens, 1, 0.0, 0, bytes([number])), weight)
    left = {bytes([number]): len(sizes[number]) for number in range(len(weights))}
    served = dict.fromkeys(left, 0.0)
    while True:
        ticket = its.take()
        its.check()
        served[ticket.tenant] += ticket.tokens / weights[ticket.tenant[0]]
        left[ticket.tenant] -= 1
        if not left[ticket.tenant]:
            break
        assert max(served.values()) - min(served.values()) <= 2 * (5_000 / min(weights) + QUANTUM_TOKENS)


@pytest.mark.parametrize("weight", [0.001, 1.0, 7.0])
def test_whose_turn_it_is_stays_so_until_it_is_taken(weight: float) -> None:
    its = FairClass()
    for tenant in TENANTS:
        its.add(Ticket(100_000, 1, 0.0, 0, tenant), weight)
    first = its.first()
    assert its.first() is first
    assert its.take() is first
    assert len(its) == 2
