"""Decides who goes to the router now, who waits and who is refused. Pure: time is an argument.

A request goes at once while nobody waits, fewer outputs than the limit are in flight, and the replicas are predicted to
begin with it soon: within `SHARE_OF_REPLICAS` of the longest wait. What has more to wait for waits here, where it has a
priority and a tenant, rather than at a replica, where it has neither. The router's latest prediction says how much is
queued at the replicas; a second later it is a second less. One that would wait longer than it may is refused as it
comes: nobody waits in vain.

Invariant: `0 <= in_flight <= max_outputs`; a ticket waits, or is inside, or neither; only what is inside can be
unstarted; whenever nobody waits no drain is measured.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from cluster.coordinator.admission.drain import DrainRate
from cluster.coordinator.admission.line import Line, LineSettings
from cluster.coordinator.admission.ticket import Ticket
from cluster.errors import InvalidRequest, Overloaded

SHARE_OF_REPLICAS = 0.25
"""Of the longest wait, what may be spent in the queue of a replica: enough to keep it busy."""

_LONGEST_RETRY_S = 600.0
_UNKNOWN_RETRY_S = 1.0


class Refusal(Enum):
    """Why a request was told to come back."""

    TOO_LONG = "too_long"  # it would wait longer than it may
    FULL = "full"  # there is no room in line
    CROWDED_OUT = "crowded_out"  # it waited, and one with more right to wait came
    LATE = "late"  # it waited as long as it may, and longer than was predicted


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """`max_outputs` in flight; `max_wait_s` until a replica begins with a request, None: as long as it takes."""

    max_outputs: int = 1024
    max_wait_s: float | None = 60.0
    line: LineSettings = field(default_factory=LineSettings)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What becomes of a request that came: it goes at once, or waits; who was `crowded_out` for it is refused."""

    goes: bool
    crowded_out: tuple[Ticket, ...] = ()


_GOES = Arrival(True)


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """A truthful snapshot. The `waited` and `refused` figures only grow."""

    in_flight: int
    waiting_requests: Mapping[int, int]
    waiting_tokens: Mapping[int, int]
    waited: int
    waited_s: float
    refused: Mapping[Refusal, int]


class AdmissionQueue:
    """Owns the line, and what is inside: from `arrive` or `release` to `leave`."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        wait_s = settings.max_wait_s
        self._at_replicas_s = float("inf") if wait_s is None else SHARE_OF_REPLICAS * wait_s
        self._in_line_s = float("inf") if wait_s is None else wait_s - self._at_replicas_s
        self._line = Line(settings.line)
        self._drain = DrainRate()
        self._inside: set[Ticket] = set()
        self._unstarted: set[Ticket] = set()
        self._unstarted_tokens = 0
        self._in_doorway: Ticket | None = None
        self._begins_at = 0.0  # when a replica is predicted to begin with the next request
        self._in_flight = 0
        self._waited = 0
        self._waited_s = 0.0
        self._refused: Counter[Refusal] = Counter()

    @property
    def in_flight(self) -> int:
        """Outputs of all requests that are inside."""
        return self._in_flight

    @property
    def in_line_s(self) -> float:
        """The longest time a request waits in line."""
        return self._in_line_s

    def require_possible(self, outputs: int) -> None:
        """Raises `InvalidRequest` when so many outputs can never be in flight together."""
        if outputs > self._settings.max_outputs:
            raise InvalidRequest(
                f"{outputs} outputs are more than this server computes at once ({self._settings.max_outputs}, "
                "gateway.max_requests_in_flight)"
            )

    def arrive(self, ticket: Ticket, now: float) -> Arrival:
        """It goes or waits. Raises `Overloaded`, or `InvalidRequest` if it never may."""
        if not self._line and self._is_open(ticket, now):
            self._enter(ticket)
            return _GOES
        self.require_possible(ticket.outputs)
        wait_s = self.wait_s(ticket, now)
        if wait_s is not None and wait_s > self._in_line_s:
            raise self.refuse(ticket, Refusal.TOO_LONG, now)
        out = self._line.crowded_out(ticket)
        if out is None:
            raise self.refuse(ticket, Refusal.FULL, now)
        if not self._line:
            self._drain.begins(now, self._unstarted_tokens, self._backlog_s(now))
        self._line.add(ticket)
        return Arrival(False, tuple(out))

    def release(self, now: float) -> Ticket | None:
        """The next one that goes, None: nobody now. Until it was `routed` it stands in the doorway, alone."""
        if self._in_doorway is not None or (first := self._line.first()) is None or not self._is_open(first, now):
            return None
        ticket = self._line.take()
        self._drain.moves(now, ticket.tokens)
        self._waited += 1
        self._waited_s += now - ticket.arrived_at
        self._rest_if_nobody_waits()
        self._enter(ticket)
        self._in_doorway = ticket
        return ticket

    def routed(self, ticket: Ticket, queue_s: float | None, now: float) -> None:
        """It was placed where `queue_s` of work is before it; None: nobody knows."""
        if ticket is self._in_doorway:
            self._in_doorway = None
        if queue_s is not None:
            self._begins_at = now + queue_s

    def started(self, ticket: Ticket) -> None:
        """Its first token came."""
        if ticket in self._unstarted:
            self._unstarted.remove(ticket)
            self._unstarted_tokens -= ticket.tokens

    def leave(self, ticket: Ticket) -> None:
        """It is over, wherever it was. Later calls change nothing."""
        if ticket is self._in_doorway:
            self._in_doorway = None
        if ticket in self._inside:
            self.started(ticket)
            self._inside.remove(ticket)
            self._in_flight -= ticket.outputs
        elif ticket in self._line:
            self._line.remove(ticket)
            self._rest_if_nobody_waits()

    def refuse(self, ticket: Ticket, reason: Refusal, now: float) -> Overloaded:
        """What to tell a request that may not wait, or not any more."""
        self._refused[reason] += 1
        waiting = len(self._line)
        return Overloaded(
            f"{self._in_flight} outputs are in flight and {waiting} requests wait: {_WHY[reason]}",
            self.retry_after_s(ticket, now),
        )

    def retry_after_s(self, ticket: Ticket, now: float) -> float:
        """When a request like it would go, if it waited and nobody else came."""
        return min(self.wait_s(ticket, now) or _UNKNOWN_RETRY_S, _LONGEST_RETRY_S)

    def wait_s(self, ticket: Ticket, now: float) -> float | None:
        """How long it would stand in line from now on; None while nobody knows how fast the line moves."""
        own_s = self._drain.seconds_for(ticket.tokens)
        if own_s is None:
            return None
        ahead_s = self._drain.seconds_for(self._line.ahead_of(ticket)) or 0.0
        return ahead_s + max(own_s, self._closed_s(now))

    def opens_in_s(self, now: float) -> float | None:
        """When `release` is to be asked again though nothing else happens; None: not until something does."""
        if self._in_doorway is not None or not self._line or not self._unstarted:
            return None
        return self._closed_s(now) or None

    def statistics(self) -> AdmissionStatistics:
        """A snapshot, O(waiting tenants)."""
        classes = self._line.by_priority()
        return AdmissionStatistics(
            in_flight=self._in_flight,
            waiting_requests={priority: len(each) for priority, each in classes.items()},
            waiting_tokens={priority: each.tokens for priority, each in classes.items()},
            waited=self._waited,
            waited_s=self._waited_s,
            refused=dict(self._refused),
        )

    def check(self) -> None:
        """Assert the invariant."""
        self._line.check()
        assert self._in_flight == sum(ticket.outputs for ticket in self._inside) <= self._settings.max_outputs
        assert self._unstarted <= self._inside
        assert self._unstarted_tokens == sum(ticket.tokens for ticket in self._unstarted)
        assert self._in_doorway is None or self._in_doorway in self._unstarted
        assert not any(ticket in self._line for ticket in self._inside)
        assert self._drain.measuring == bool(self._line)

    def _is_open(self, ticket: Ticket, now: float) -> bool:
        """Whether there is room, and the replicas will begin soon. With nothing to begin with, they do at once."""
        if self._in_flight + ticket.outputs > self._settings.max_outputs:
            return False
        return not self._unstarted or self._backlog_s(now) <= self._at_replicas_s

    def _closed_s(self, now: float) -> float:
        """How long the replicas still have too much queued."""
        return max(0.0, self._backlog_s(now) - self._at_replicas_s) if self._unstarted else 0.0

    def _backlog_s(self, now: float) -> float:
        return self._begins_at - now

    def _enter(self, ticket: Ticket) -> None:
        self._inside.add(ticket)
        self._unstarted.add(ticket)
        self._unstarted_tokens += ticket.tokens
        self._in_flight += ticket.outputs

    def _rest_if_nobody_waits(self) -> None:
        if not self._line:
            self._drain.ends()


_WHY = {
    Refusal.TOO_LONG: "another would wait longer than gateway.admission.max_wait_s allows",
    Refusal.FULL: "no more may wait (gateway.admission.max_waiting_requests, max_waiting_tokens)",
    Refusal.CROWDED_OUT: "others have more right to wait",
    Refusal.LATE: "this one has waited as long as gateway.admission.max_wait_s allows",
}
