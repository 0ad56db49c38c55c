"""Decides who goes to the router now, who waits and who is refused. Pure: time is an argument.

A request goes at once while nobody waits, fewer outputs than the limit are in flight, and the router's forecast is that
a replica begins with it soon, within `SHARE_OF_REPLICAS` of the longest wait, and has room to decode it by the time its
prompt is computed. What has more to wait for waits here, where it has a priority and a tenant, rather than at a
replica, where it has neither. One that would wait longer than it may is refused as it comes: nobody waits in vain.

While the latest placement found replicas that had little to do the next one goes without a forecast, which costs about
as much as a placement.

Invariant: `0 <= in_flight <= max_outputs`; a ticket waits, or is inside, or neither; only what is inside can be
unstarted; whenever nobody waits no drain is measured.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from cluster.coordinator.admission.drain import DrainRate
from cluster.coordinator.admission.line import Line, LineSettings
from cluster.coordinator.admission.ticket import Ticket
from cluster.errors import InvalidRequest, Overloaded
from routing.router import Predicted

Forecast = Callable[[Ticket, float], Predicted | None]
"""What awaits a ticket at the replicas at a moment; None: nobody knows."""

SHARE_OF_REPLICAS = 0.25
"""Of the longest wait, what may be spent in the queue of a replica: enough to keep it busy."""

_LITTLE = 0.5
"""Of what may be spent in the queue of a replica: with less than this the next one needs no forecast."""

_FEW = 0.9
"""Of the requests that a decode replica has room for: with no more than these there is room for one more."""

_SHORTEST_PAUSE_S = 0.01
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
    max_wait_s: float | None = 2.0
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

    def __init__(self, settings: AdmissionSettings, forecast: Forecast) -> None:
        self._settings = settings
        self._forecast = forecast
        self._longest_s = inf if settings.max_wait_s is None else settings.max_wait_s
        self._line = Line(settings.line)
        self._drain = DrainRate()
        self._inside: set[Ticket] = set()
        self._unstarted: set[Ticket] = set()
        self._unstarted_tokens = 0
        self._in_doorway: Ticket | None = None
        self._has_little_to_do = True  # the replica that the latest one was placed on
        self._begins_at = 0.0  # when a replica would begin with the next, as far as was foreseen
        self._opens_at = 0.0  # when that is soon enough for it to go
        self._in_flight = 0
        self._waited = 0
        self._waited_s = 0.0
        self._refused: Counter[Refusal] = Counter()

    @property
    def in_flight(self) -> int:
        """Outputs of all requests that are inside."""
        return self._in_flight

    def in_line_s(self, ticket: Ticket) -> float:
        """The longest time it waits in line."""
        return (1 - SHARE_OF_REPLICAS) * min(self._longest_s, ticket.longest_s)

    def require_possible(self, outputs: int) -> None:
        """Raises `InvalidRequest` when so many outputs can never be in flight together."""
        if outputs > self._settings.max_outputs:
            raise InvalidRequest(
                f"{outputs} outputs are more than this server computes at once ({self._settings.max_outputs}, "
                "gateway.max_requests_in_flight)"
            )

    def arrive(self, ticket: Ticket, now: float) -> Arrival:
        """It goes or waits. Raises `Overloaded`, or `InvalidRequest` if it never may."""
        if not self._line and self._goes_at_once(ticket, now):
            self._enter(ticket)
            return _GOES
        self.require_possible(ticket.outputs)
        wait_s = self.wait_s(ticket, now)
        if wait_s > self.in_line_s(ticket):
            raise self.refuse(ticket, Refusal.TOO_LONG, now)
        out = self._line.crowded_out(ticket)
        if out is None:
            raise self.refuse(ticket, Refusal.FULL, now)
        if not self._line:
            self._drain.begins(now, max(self._unstarted_tokens, ticket.tokens), self._begins_at - now)
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

    def routed(self, ticket: Ticket, predicted: Predicted | None) -> None:
        """It was placed where this is predicted; None: nobody knows."""
        if ticket is self._in_doorway:
            self._in_doorway = None
        self._has_little_to_do = predicted is None or (
            predicted.crowd <= _FEW and predicted.queue_s <= _LITTLE * SHARE_OF_REPLICAS * self._longest_s
        )

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
        """When those that go before a request like it have gone, if nobody else comes."""
        ahead_s = self._drain.seconds_for(self._line.ahead_of(ticket), now) or 0.0
        return min(max(ahead_s, self._closed_s(now)) or _UNKNOWN_RETRY_S, _LONGEST_RETRY_S)

    def wait_s(self, ticket: Ticket, now: float) -> float:
        """How long it would stand in line from now on, at least, while nobody knows how fast the line moves."""
        in_line_s = self._drain.seconds_for(self._line.ahead_of(ticket) + ticket.tokens, now)
        return max(in_line_s or 0.0, self._closed_s(now))

    def opens_in_s(self, now: float) -> float | None:
        """When `release` is to be asked again though nothing else happens; None: not until something does."""
        if self._in_doorway is not None or not self._line or not (closed_s := self._closed_s(now)):
            return None
        return max(closed_s, _SHORTEST_PAUSE_S)

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

    def _goes_at_once(self, ticket: Ticket, now: float) -> bool:
        """Whether it goes as it comes. Who is in more of a hurry than others needs a forecast of its own."""
        if self._has_little_to_do and ticket.longest_s >= self._longest_s:
            return self._fits(ticket)
        return self._is_open(ticket, now)

    def _is_open(self, ticket: Ticket, now: float) -> bool:
        """Whether there is room, and the replicas will begin soon. Someone always may be inside, whatever is forecast:
        what the others have to do may be more than anybody sees here.
        """
        if not self._fits(ticket):
            return False
        at_replicas_s = SHARE_OF_REPLICAS * min(self._longest_s, ticket.longest_s)
        if not self._inside or at_replicas_s == inf or (ahead := self._forecast(ticket, now)) is None:
            return True
        closed_s = max(0.0, ahead.queue_s - at_replicas_s, ahead.room_s)
        self._begins_at, self._opens_at = now + ahead.queue_s + ahead.room_s, now + closed_s
        return not closed_s

    def _fits(self, ticket: Ticket) -> bool:
        return self._in_flight + ticket.outputs <= self._settings.max_outputs

    def _closed_s(self, now: float) -> float:
        """How long the replicas still have too much to do, as far as was foreseen."""
        return max(0.0, self._opens_at - now)

    def _enter(self, ticket: Ticket) -> None:
        self._inside.add(ticket)
        self._unstarted.add(ticket)
        self._unstarted_tokens += ticket.tokens
        self._in_flight += ticket.outputs

    def _rest_if_nobody_waits(self) -> None:
        if not self._line:
            self._drain.ends()


_WHY = {
    Refusal.TOO_LONG: "another would wait longer than gateway.admission.max_wait_s, or its client, allows",
    Refusal.FULL: "no more may wait (gateway.admission.max_waiting_requests, max_waiting_tokens)",
    Refusal.CROWDED_OUT: "others have more right to wait",
    Refusal.LATE: "this one has waited as long as gateway.admission.max_wait_s, or its client, allows",
}
