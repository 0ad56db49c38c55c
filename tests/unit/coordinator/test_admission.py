"""Who goes, who waits and who is refused, one decision at a time."""

import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionQueue, AdmissionSettings, Refusal
from cluster.coordinator.admission.ticket import OUTPUT_TOKENS, Ticket, ticket_of
from cluster.errors import InvalidRequest, Overloaded
from tests.simulation.world import request


def queue(
    max_outputs: int = 10, max_wait_s: float | None = 8.0, requests: int = 10, tokens: int = 10_000
) -> AdmissionQueue:
    return AdmissionQueue(AdmissionSettings(max_outputs, max_wait_s, LineSettings(requests, tokens, {b"big": 3.0})))


def ticket(tokens: int = 1_000, tenant: bytes = b"", priority: int = 0, outputs: int = 1, at: float = 0.0) -> Ticket:
    return Ticket(tokens, outputs, at, priority, tenant)


def closed(queue_s: float = 6.0, **bounds: float) -> AdmissionQueue:
    """A queue whose replicas have so much to do from time 0 on: 1,000 tokens."""
    its, first = queue(**bounds), ticket()
    assert its.arrive(first, 0.0).goes
    its.routed(first, queue_s, 0.0)
    return its


def goes_in_turn(its: AdmissionQueue, now: float) -> list[Ticket]:
    """All that may go now, placed where nothing else is queued."""
    gone = []
    while (each := its.release(now)) is not None:
        its.routed(each, 0.0, now)
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


def test_with_nothing_left_to_begin_the_replicas_are_free_whatever_was_predicted() -> None:
    its, first, second = queue(), ticket(), ticket()
    its.arrive(first, 0.0)
    its.routed(first, 6.0, 0.0)
    its.arrive(second, 0.0)
    its.started(first)
    assert its.release(0.0) is second


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
    assert raised.value.retry_after_s == pytest.approx(9.0)
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
    assert goes_in_turn(its, 3.0) == [*greedy[:5], *modest, greedy[5]]


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
