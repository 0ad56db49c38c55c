"""Who goes, who waits and who is refused, one decision at a time."""

from math import inf

import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionQueue, AdmissionSettings, Refusal
from cluster.coordinator.admission.ticket import OUTPUT_TOKENS, Ticket, ticket_of
from cluster.errors import InvalidRequest, Overloaded
from routing.router import Predicted
from tests.simulation.world import request


def predicted(queue_s: float, room_s: float = 0.0, crowd: float = 0.5) -> Predicted:
    return Predicted(queue_s, 0.1, 0.0, 0.1, 0.02, 100, 0, room_s, crowd)


class Ahead:
    """A forecast: replicas that have so much to do from time 0 on; decode has no room for `room_s`, whatever passes."""

    def __init__(self, queue_s: float | None = 0.0, room_s: float = 0.0) -> None:
        self.queue_s = queue_s
        self.room_s = room_s
        self.asked = 0

    def __call__(self, _: Ticket, now: float) -> Predicted | None:
        self.asked += 1
        return None if self.queue_s is None else predicted(max(0.0, self.queue_s - now), self.room_s)


def queue(
    ahead: Ahead | None = None,
    max_outputs: int = 10,
    max_wait_s: float | None = 8.0,
    requests: int = 10,
    tokens: int = 10_000,
) -> AdmissionQueue:
    settings = AdmissionSettings(max_outputs, max_wait_s, LineSettings(requests, tokens, {b"big": 3.0}))
    return AdmissionQueue(settings, ahead or Ahead())


def ticket(
    tokens: int = 1_000,
    tenant: bytes = b"",
    priority: int = 0,
    outputs: int = 1,
    at: float = 0.0,
    longest_s: float = inf,
) -> Ticket:
    return Ticket(tokens, outputs, at, priority, tenant, longest_s)


def closed(queue_s: float | None = 6.0, room_s: float = 0.0, **bounds: float) -> AdmissionQueue:
    """A queue whose replicas have so much to do from time 0 on, and 1,000 tokens not begun."""
    its, first = queue(Ahead(queue_s, room_s), **bounds), ticket()
    assert its.arrive(first, 0.0).goes
    its.routed(first, predicted(1e6))
    return its


def goes_in_turn(its: AdmissionQueue, now: float) -> list[Ticket]:
    """All that may go now."""
    gone = []
    while (each := its.release(now)) is not None:
        its.routed(each, predicted(1e6))
        gone.append(each)
    return gone


def test_a_request_goes_at_once_while_replicas_begin_soon() -> None:
    its = closed(queue_s=2.0)
    assert its.arrive(ticket(), 0.0).goes


def test_one_waits_until_the_replicas_have_less_queued_and_time_alone_lets_it_in() -> None:
    its, second = closed(queue_s=6.0), ticket()
    assert not its.arrive(second, 0.0).goes
    assert its.opens_in_s(1.0) == pytest.approx(3.0)
    assert its.release(3.9) is None
    assert its.release(4.0) is second


def test_with_nothing_inside_one_goes_whatever_is_foreseen() -> None:
    ahead, first, second = Ahead(6.0), ticket(), ticket()
    its = queue(ahead)
    its.arrive(first, 0.0)
    its.routed(first, predicted(6.0))
    its.arrive(second, 0.0)
    assert its.release(0.0) is None
    its.leave(first)
    assert its.release(0.0) is second


def test_without_room_to_decode_it_one_waits_however_idle_prefill_is() -> None:
    its, second = closed(queue_s=0.0, room_s=0.5), ticket()
    assert not its.arrive(second, 0.0).goes
    assert its.opens_in_s(0.0) == pytest.approx(0.5)
    assert its.release(0.5) is None, "a place was promised, not given"


def test_who_comes_while_replicas_have_little_to_do_costs_no_forecast() -> None:
    ahead = Ahead(0.0)
    its = queue(ahead)
    for each in [ticket() for _ in range(5)]:
        assert its.arrive(each, 0.0).goes
        its.routed(each, predicted(1.0))
    assert ahead.asked == 0
    its.routed(each, predicted(0.0, crowd=0.95))
    assert its.arrive(ticket(), 0.0).goes
    assert ahead.asked == 1


def test_where_nothing_is_predicted_the_door_is_open() -> None:
    assert closed(queue_s=None).arrive(ticket(), 0.0).goes


def test_one_in_a_hurry_waits_no_longer_than_it_may() -> None:
    its = closed(queue_s=5.0)  # 200 tokens a second
    assert its.in_line_s(ticket(longest_s=2.0)) == 1.5
    assert not its.arrive(ticket(200, longest_s=6.0), 0.0).goes
    with pytest.raises(Overloaded) as raised:
        its.arrive(ticket(200, longest_s=2.0), 0.0)
    assert raised.value.retry_after_s == pytest.approx(3.5)
    assert not its.arrive(ticket(100), 0.0).goes


def test_a_line_that_stands_still_is_taken_to_get_slower() -> None:
    its = closed(queue_s=5.0)
    assert not its.arrive(ticket(500), 0.0).goes
    with pytest.raises(Overloaded) as raised:
        its.arrive(ticket(800), 5.0)
    assert raised.value.retry_after_s == pytest.approx(5.0), "half as fast as was thought"


def test_the_next_waits_until_the_one_before_was_placed() -> None:
    its, two = closed(), [ticket(100), ticket(100)]
    for each in two:
        its.arrive(each, 0.0)
    assert its.release(5.0) is two[0]
    assert its.release(5.0) is None
    its.leave(two[0])
    assert its.release(5.0) is two[1]


def test_outputs_in_flight_are_bounded_and_those_that_never_fit_are_the_requests_own_fault() -> None:
    its, first, second = queue(max_outputs=3), ticket(outputs=2), ticket(outputs=2)
    its.arrive(first, 0.0)
    assert not its.arrive(second, 0.0).goes
    with pytest.raises(InvalidRequest, match="4 outputs"):
        its.arrive(ticket(outputs=4), 0.0)
    its.leave(first)
    assert its.release(0.0) is second


def test_who_would_wait_longer_than_it_may_is_refused_at_once_and_told_how_long() -> None:
    its = closed(queue_s=5.0)  # 200 tokens a second, and 6 s to wait at most
    assert not its.arrive(ticket(800), 0.0).goes
    with pytest.raises(Overloaded, match="max_wait_s") as raised:
        its.arrive(ticket(1_000), 0.0)
    assert raised.value.retry_after_s == pytest.approx(4.0), "when the 800 tokens before it have gone"
    assert its.statistics().refused == {Refusal.TOO_LONG: 1}


def test_without_a_longest_wait_only_the_bounds_refuse() -> None:
    its = closed(queue_s=1e6, max_wait_s=None, requests=10, max_outputs=1)
    for _ in range(10):
        assert not its.arrive(ticket(), 0.0).goes
    with pytest.raises(Overloaded, match="max_waiting_requests"):
        its.arrive(ticket(), 0.0)


def test_lower_priority_numbers_go_sooner() -> None:
    its = closed()
    later, normal, sooner = (ticket(100, priority=p) for p in (1, 0, -1))
    for each in (later, normal, sooner):
        its.arrive(each, 0.0)
    assert goes_in_turn(its, 6.0) == [sooner, normal, later]


def test_tenants_take_turns_by_tokens() -> None:
    its = closed(queue_s=2.5, max_outputs=20)
    greedy = [ticket(200, b"greedy") for _ in range(6)]
    modest = [ticket(100, b"modest") for _ in range(4)]
    for each in greedy + modest:
        its.arrive(each, 0.0)
    assert goes_in_turn(its, 3.0) == [*modest[:2], greedy[0], *modest[2:], *greedy[1:]]


def test_a_greedy_tenant_fills_the_line_only_until_another_comes() -> None:
    its = closed(requests=3, max_wait_s=None, max_outputs=1)
    greedy = [ticket(1_000, b"greedy") for _ in range(3)]
    for each in greedy:
        its.arrive(each, 0.0)
    assert its.arrive(ticket(1_000, b"modest"), 0.0).crowded_out == (greedy[2],)
    assert its.arrive(ticket(1_000, b"big"), 0.0).crowded_out == (greedy[1],)
    with pytest.raises(Overloaded):
        its.arrive(ticket(1_000, b"greedy"), 0.0)


def test_a_single_request_may_wait_however_long_it_is() -> None:
    its = closed(max_wait_s=None, max_outputs=1)
    assert not its.arrive(ticket(50_000), 0.0).goes
    with pytest.raises(Overloaded, match="max_waiting_tokens"):
        its.arrive(ticket(1), 0.0)


def test_a_ticket_counts_the_prompt_and_what_will_probably_be_made_of_it() -> None:
    assert ticket_of(request(prompt=100, max_tokens=4, outputs=3), 0.0).tokens == 112
    assert ticket_of(request(prompt=100, max_tokens=100_000), 0.0).tokens == 100 + OUTPUT_TOKENS
