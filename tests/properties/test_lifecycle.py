"""Properties of the lifecycle's table, and of every walk through it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.coordinator.lifecycle import (
    TERMINAL,
    TRANSITIONS,
    Budget,
    Event,
    Instruction,
    Lifecycle,
    State,
    instruction,
    settle,
)

MOST_WAITS = 3  # patience is the coordinator's
WAITS = (Event.NONE_NOW, Event.BLOCKS_COMING)
PAIRS = [(state, event) for state, exits in TRANSITIONS.items() for event in exits]


def test_every_state_has_an_entry_and_can_be_reached() -> None:
    reached, frontier = {State.ROUTING}, [State.ROUTING]
    while frontier:
        news = set(TRANSITIONS[frontier.pop()].values()) - reached
        reached |= news
        frontier += news
    assert reached == set(State) == set(TRANSITIONS)


def test_terminal_states_expect_nothing_and_are_the_three_ends() -> None:
    assert {State.FINISHED, State.FAILED, State.CANCELLED} == TERMINAL


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL, key=lambda s: s.value))
def test_a_deadline_a_lost_client_and_a_fault_end_every_state_that_is_not_an_end(state: State) -> None:
    assert TRANSITIONS[state][Event.DEADLINE] is State.FAILED
    assert TRANSITIONS[state][Event.CLIENT_GONE] is State.CANCELLED
    assert TRANSITIONS[state][Event.BROKEN] is State.FAILED


@pytest.mark.parametrize("event", Event)
def test_every_event_is_expected_somewhere(event: Event) -> None:
    assert any(event in exits for exits in TRANSITIONS.values())


@pytest.mark.parametrize("state", sorted(TERMINAL, key=lambda s: s.value))
def test_an_event_after_the_end_raises(state: State) -> None:
    for event in Event:
        with pytest.raises(KeyError):
            instruction(state, event, Budget(1, 1))


@pytest.mark.parametrize(("state", "event"), PAIRS)
@pytest.mark.parametrize("budget", [Budget(0, 0), Budget(0, 1), Budget(1, 0), Budget(1, 1)])
def test_the_instruction_follows_from_the_state_that_is_reached(state: State, event: Event, budget: Budget) -> None:
    reached = TRANSITIONS[state][settle(event, budget)]
    ends = {
        State.ROUTING: Instruction.REROUTE,
        State.FINISHED: Instruction.FINISH,
        State.FAILED: Instruction.FAIL,
        State.CANCELLED: Instruction.ABORT,
    }
    expected = Instruction.WAIT if event in WAITS else ends.get(reached, Instruction.CONTINUE)
    if (state, event) == (State.PREFILLING, Event.PREFILL_LOST):
        expected = Instruction.TELL_SOURCE_LOST
    assert instruction(state, event, budget) is expected


def test_decode_lost_is_rerouted_while_attempts_are_left_and_whatever_the_client_has_had() -> None:
    for state in (State.PREFILLING, State.WAITING, State.COMPUTING, State.DECODING):
        assert instruction(state, Event.DECODE_LOST, Budget(1, 9)) is Instruction.REROUTE
        assert instruction(state, Event.DECODE_LOST, Budget(0, 9)) is Instruction.FAIL


def test_a_move_costs_no_attempt_and_when_no_move_is_left_it_is_a_loss() -> None:
    lifecycle = Lifecycle(max_attempts=1, max_moves=2)
    for _ in range(2):
        lifecycle.on(Event.ROUTED_LOCAL)
        assert lifecycle.on(Event.DECODE_MOVED) is Instruction.REROUTE
    assert lifecycle.budget == Budget(attempts=1, moves=0)
    lifecycle.on(Event.ROUTED_LOCAL)
    assert lifecycle.on(Event.DECODE_MOVED) is Instruction.FAIL


@given(st.integers(1, 4), st.integers(0, 3), st.data())
def test_no_walk_is_longer_than_its_budget_allows(max_attempts: int, max_moves: int, data: st.DataObject) -> None:
    lifecycle = Lifecycle(max_attempts, max_moves)
    routings = prefill_ends = waits = 0
    while not lifecycle.ended:
        events = [e for e in TRANSITIONS[lifecycle.state] if e is not Event.ATTEMPTS_SPENT]
        if prefill_ends == routings:  # a prefill leg ends at most once in an attempt
            events = [e for e in events if e not in (Event.PREFILL_DONE, Event.PREFILL_LOST)]
        if waits == MOST_WAITS:
            events = [e for e in events if e not in WAITS]
        event = data.draw(st.sampled_from(events))
        routings += event in (Event.ROUTED_DISAGGREGATED, Event.ROUTED_LOCAL)
        prefill_ends += event in (Event.PREFILL_DONE, Event.PREFILL_LOST)
        waits += event in WAITS
        lifecycle.on(event)
        assert 0 <= lifecycle.budget.attempts <= max_attempts
        assert 0 <= lifecycle.budget.moves <= max_moves
    assert routings <= max_attempts + max_moves
