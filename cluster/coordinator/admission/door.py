"""Performs what the queue decides: lets requests in, wakes the ones that waited, refuses.

A request that goes at once costs no switch of tasks. One that waits is woken when it is its turn, when it is refused,
or by its client's going away, which takes it out of the line at once.
"""

import asyncio
from collections.abc import Callable
from math import inf

from cluster.coordinator.admission.queue import (
    AdmissionQueue,
    AdmissionSettings,
    AdmissionStatistics,
    Forecast,
    Refusal,
)
from cluster.coordinator.admission.ticket import Ticket, ticket_of
from cluster.coordinator.workers import GenerationRequest
from cluster.errors import Overloaded
from routing.router import Decision

_Turn = asyncio.Future[Overloaded | None]


class Visit:
    """One request from its arrival until `leave`. Whoever made it calls `leave`, however it ends."""

    __slots__ = ("_door", "ticket", "turn", "unstarted")

    def __init__(self, door: "Door", ticket: Ticket) -> None:
        self._door = door
        self.ticket = ticket
        self.turn: _Turn | None = None  # there is one while it has to wait
        self.unstarted = True

    async def wait(self) -> None:
        """Return when it is its turn. Raises `Overloaded` when it may not wait any more."""
        await self._door.wait(self)

    def routed(self, decision: Decision) -> None:
        """It was placed."""
        self._door.routed(self.ticket, decision)

    def started(self) -> None:
        """Its first token came."""
        self.unstarted = False
        self._door.started(self.ticket)

    def leave(self) -> None:
        """It is over."""
        self._door.leave(self.ticket)


class Door:
    """Owns the queue and a turn for each request that waits. Lives in one event loop."""

    def __init__(self, settings: AdmissionSettings, clock: Callable[[], float], forecast: Forecast) -> None:
        self._queue = AdmissionQueue(settings, forecast)
        self._clock = clock
        self._turns: dict[Ticket, _Turn] = {}
        self._timer: asyncio.TimerHandle | None = None

    def require_possible(self, outputs: int) -> None:
        """See `AdmissionQueue.require_possible`."""
        self._queue.require_possible(outputs)

    def arrive(self, request: GenerationRequest, longest_s: float = inf) -> Visit:
        """A request comes; with a `turn` it has to `wait`. Raises `Overloaded` or `InvalidRequest`.

        It may wait `longest_s` until a replica begins with it, if that is less than everybody may.
        """
        now = self._clock()
        ticket = ticket_of(request, now, longest_s)
        visit = Visit(self, ticket)
        arrival = self._queue.arrive(ticket, now)
        if not arrival.goes:
            for other in arrival.crowded_out:
                self._turns.pop(other).set_result(self._queue.refuse(other, Refusal.CROWDED_OUT, now))
            visit.turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
            self._let_in()
        return visit

    async def wait(self, visit: Visit) -> None:
        """See `Visit.wait`."""
        assert visit.turn is not None, "nobody asked it to wait"
        in_line_s = self._queue.in_line_s(visit.ticket)
        await asyncio.wait([visit.turn], timeout=None if in_line_s == inf else in_line_s)
        if not visit.turn.done():
            raise self._queue.refuse(visit.ticket, Refusal.LATE, self._clock())
        refusal = visit.turn.result()
        if refusal is not None:
            raise refusal

    def routed(self, ticket: Ticket, decision: Decision) -> None:
        """See `Visit.routed`."""
        self._queue.routed(ticket, decision.predicted)
        self._let_in()

    def started(self, ticket: Ticket) -> None:
        """See `Visit.started`."""
        self._queue.started(ticket)
        self._let_in()

    def leave(self, ticket: Ticket) -> None:
        """See `Visit.leave`."""
        turn = self._turns.pop(ticket, None)
        if turn is not None:
            turn.cancel()
        self._queue.leave(ticket)
        self._let_in()

    def statistics(self) -> AdmissionStatistics:
        """See `AdmissionQueue.statistics`."""
        return self._queue.statistics()

    def check(self) -> None:
        """Assert that the queue is right."""
        self._queue.check()

    def _let_in(self) -> None:
        """Wake whoever may go now, and see to being called again when time alone lets somebody in."""
        if not self._turns:
            return
        while (ticket := self._queue.release(self._clock())) is not None:
            self._turns.pop(ticket).set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        opens_in_s = self._queue.opens_in_s(self._clock())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(opens_in_s, self._let_in) if opens_in_s is not None else None
