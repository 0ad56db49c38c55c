"""The lifecycle of one request: a table of states and events, and what each step asks of the coordinator.

    ROUTING     no leg is open; the client may have had tokens of a leg that was lost
    PREFILLING  both legs are sent, prefill is not done
    WAITING     prefill is done, decode has not spoken yet
    COMPUTING   decode computes the prompt itself (no prefill leg, or it was lost)
    DECODING    tokens come

Only `Lifecycle.on` changes a state, and only by `TRANSITIONS`; an event that a state does not expect raises `KeyError`.
A terminal state expects nothing. Drawn in docs/lifecycle.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class State(Enum):
    """Where a request is."""

    ROUTING = "routing"
    PREFILLING = "prefilling"
    WAITING = "waiting"
    COMPUTING = "computing"
    DECODING = "decoding"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(Enum):
    """What can happen to it."""

    ROUTED_DISAGGREGATED = "routed disaggregated"
    ROUTED_LOCAL = "routed local"
    NO_CANDIDATE = "no candidate"
    NONE_NOW = "none now"  # no candidate, for a request that had one and waits for another
    BLOCKS_COMING = "blocks coming"  # another request's leg computes what this one needs
    PREFILL_DONE = "prefill done"
    PREFILL_LOST = "prefill lost"
    FIRST_TOKEN = "first token"
    FINISHED = "finished"
    DECODE_LOST = "decode lost"
    DECODE_MOVED = "decode moved"  # the replica gives it back, because it drains: nobody has failed
    ATTEMPTS_SPENT = "attempts spent"  # decode lost, and no attempt is left
    REFUSED = "refused"  # the request's own fault
    DEADLINE = "deadline"
    CLIENT_GONE = "client gone"
    BROKEN = "broken"  # a fault of ours that no other event names


class Instruction(Enum):
    """What the coordinator does next."""

    CONTINUE = "continue"  # nothing but what it is doing
    TELL_SOURCE_LOST = "tell source lost"  # decode must not wait for the prefill leg
    REROUTE = "reroute"  # close both legs, route again without the replica that failed, with what the client has had
    WAIT = "wait"  # route again in a while, or when the blocks are there
    FINISH = "finish"  # close what is open: the answer is complete
    FAIL = "fail"  # close both legs and raise the error that came with the event
    ABORT = "abort"  # close both legs: nobody listens


_ALWAYS = {Event.DEADLINE: State.FAILED, Event.CLIENT_GONE: State.CANCELLED, Event.BROKEN: State.FAILED}
_OPEN = {
    Event.DECODE_LOST: State.ROUTING,
    Event.DECODE_MOVED: State.ROUTING,
    Event.ATTEMPTS_SPENT: State.FAILED,
    Event.REFUSED: State.FAILED,
    **_ALWAYS,
}
_SILENT = {Event.FIRST_TOKEN: State.DECODING, **_OPEN}

TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.ROUTING: {
        Event.ROUTED_DISAGGREGATED: State.PREFILLING,
        Event.ROUTED_LOCAL: State.COMPUTING,
        Event.NONE_NOW: State.ROUTING,
        Event.BLOCKS_COMING: State.ROUTING,
        Event.NO_CANDIDATE: State.FAILED,
        **_ALWAYS,
    },
    State.PREFILLING: {Event.PREFILL_DONE: State.WAITING, Event.PREFILL_LOST: State.COMPUTING, **_SILENT},
    State.WAITING: _SILENT,
    State.COMPUTING: _SILENT,
    State.DECODING: {
        Event.FINISHED: State.FINISHED,
        Event.PREFILL_DONE: State.DECODING,
        Event.PREFILL_LOST: State.DECODING,
        **_OPEN,
    },
    State.FINISHED: {},
    State.FAILED: {},
    State.CANCELLED: {},
}

TERMINAL = frozenset(state for state, exits in TRANSITIONS.items() if not exits)
_ON_ENTRY = {
    State.ROUTING: Instruction.REROUTE,
    State.FINISHED: Instruction.FINISH,
    State.FAILED: Instruction.FAIL,
    State.CANCELLED: Instruction.ABORT,
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left: replicas that may still be tried, and moves off replicas that drain, which cost no attempt."""

    attempts: int
    moves: int

    def after(self, event: Event) -> "Budget":
        """A routing takes an attempt; a move gives back the one that it ends."""
        match event:
            case Event.ROUTED_DISAGGREGATED | Event.ROUTED_LOCAL:
                return replace(self, attempts=self.attempts - 1)
            case Event.DECODE_MOVED:
                return Budget(self.attempts + 1, self.moves - 1)
            case _:
                return self


def settle(event: Event, budget: Budget) -> Event:
    """The event as the table knows it: with no move left decode is lost, and with no attempt left that is the end."""
    if event is Event.DECODE_MOVED and budget.moves <= 0:
        event = Event.DECODE_LOST
    return Event.ATTEMPTS_SPENT if event is Event.DECODE_LOST and budget.attempts <= 0 else event


def instruction(state: State, event: Event, budget: Budget) -> Instruction:
    """What `event` in `state` asks for, with that `budget` left. Raises `KeyError` for what cannot happen."""
    reached = TRANSITIONS[state][settle(event, budget)]
    if state is State.PREFILLING and event is Event.PREFILL_LOST:
        return Instruction.TELL_SOURCE_LOST
    if event in (Event.NONE_NOW, Event.BLOCKS_COMING):
        return Instruction.WAIT
    return _ON_ENTRY.get(reached, Instruction.CONTINUE)


class Lifecycle:
    """One request's state and its budget. Invariant: both numbers of it are from 0 up to what they began with."""

    def __init__(self, max_attempts: int, max_moves: int) -> None:
        self.state = State.ROUTING
        self.budget = Budget(max_attempts, max_moves)

    @property
    def ended(self) -> bool:
        """Whether nothing can happen any more."""
        return self.state in TERMINAL

    def on(self, event: Event) -> Instruction:
        """Make the step and say what it asks for."""
        result = instruction(self.state, event, self.budget)
        settled = settle(event, self.budget)
        self.state = TRANSITIONS[self.state][settled]
        self.budget = self.budget.after(settled)
        return result
