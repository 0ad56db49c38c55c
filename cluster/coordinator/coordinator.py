"""Behind `generate()`: admits requests, sends each on its journey, and knows what is in flight.

Invariant: a request counts as in flight from its turn at the door until its iterator has ended or was closed; then it
holds no stream, no lease, no task and no place in line.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from cluster.coordinator.admission.door import Door, Visit
from cluster.coordinator.admission.queue import AdmissionStatistics
from cluster.coordinator.admission.ticket import Ticket
from cluster.coordinator.attempt import place
from cluster.coordinator.journey import Journey, outcome_of
from cluster.coordinator.lifecycle import Event, State
from cluster.coordinator.observer import EndListener, Observer
from cluster.coordinator.resources import CoordinatorSettings, HandoffIds, Resources
from cluster.coordinator.workers import GenerationRequest, Workers
from cluster.dataplane.frames import Delta
from cluster.errors import BatonError, DeadlineExceeded, NoReplicaReady
from routing.arrivals import Arrivals
from routing.block_keys import PromptKeys
from routing.fleet import Role
from routing.ledger import Ledger
from routing.router import Predicted, Rng, Router

__all__ = ["Coordinator", "CoordinatorSettings", "CoordinatorStatistics"]


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """A truthful snapshot. `ended` counts requests by the state they ended in; `attempts` and `refused` only grow."""

    in_flight: Mapping[State, int]
    admission: AdmissionStatistics
    ended: Mapping[State, int]
    attempts: int
    refused: int


class Coordinator:
    """Implements `cluster.gateway.backend.Backend` over `Workers`."""

    def __init__(
        self,
        workers: Workers,
        router: Router,
        ledger: Ledger,
        clock: Callable[[], float],
        rng: Rng,
        settings: CoordinatorSettings,
        observer: Observer,
        listeners: Sequence[EndListener] = (),
        arrivals: Arrivals | None = None,
    ) -> None:
        self._with = Resources(
            workers, router, ledger, clock, rng, settings, observer, HandoffIds(rng), listeners, arrivals
        )
        self._door = Door(settings.admission, clock, self._forecast)
        self._journeys: set[Journey] = set()
        self._ended: dict[State, int] = {}
        self._ended_attempts = 0
        self._refused = 0

    def admit(self, outputs: int = 1) -> None:
        """Return when a request for `outputs` may come to the door; reserves nothing.

        Raises `NoReplicaReady`, or `InvalidRequest` for more outputs than may ever be in flight.
        """
        try:
            self._door.require_possible(outputs)
            self._require_decode()
        except BatonError as error:
            self._refuse(error)
            raise

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Sequence[Delta]]:
        """The request's deltas as they come: in each step at most one merged delta for each output.

        Closing or cancelling the iterator aborts both legs at once, or the wait for its turn. Raises `Overloaded`
        or `DeadlineExceeded` before the first step when it may not go in time, else whatever the request fails with.
        """
        visit = self._arrive(request)
        journey: Journey | None = None
        cause = Event.BROKEN
        try:
            if visit.turn is not None:
                await self._turn(visit)
            journey = self._begin(request, visit)
            while not journey.answered:
                deltas = await journey.next()
                if visit.unstarted:
                    visit.started()
                yield deltas
        except (asyncio.CancelledError, GeneratorExit):
            cause = Event.CLIENT_GONE
            raise
        finally:
            try:
                if journey is not None:
                    await self._end(journey, cause)
            finally:
                visit.leave()

    async def check_health(self) -> None:
        """Raises `NoReplicaReady` unless at least one decode replica is ready."""
        self._require_decode()

    def statistics(self) -> CoordinatorStatistics:
        """A snapshot, O(requests in flight)."""
        in_flight: dict[State, int] = {}
        for journey in self._journeys:
            in_flight[journey.state] = in_flight.get(journey.state, 0) + 1
        return CoordinatorStatistics(
            in_flight=in_flight,
            admission=self._door.statistics(),
            ended=dict(self._ended),
            attempts=self._ended_attempts + sum(journey.attempts for journey in self._journeys),
            refused=self._refused,
        )

    def check(self) -> None:
        """Assert that what is at the door and inside adds up."""
        self._door.check()

    def _require_decode(self) -> None:
        replicas = self._with.workers.fleet().replicas.values()
        if not any(replica.ready and replica.role is Role.DECODE for replica in replicas):
            raise NoReplicaReady("no decode replica is ready")

    def _forecast(self, ticket: Ticket, now: float) -> Predicted | None:
        return self._with.router.outlook(ticket.wish, self._with.workers.fleet(), now)

    def _refuse(self, error: BatonError) -> None:
        self._refused += 1
        self._with.observer.refused(outcome_of(error))

    def _arrive(self, request: GenerationRequest) -> Visit:
        try:
            return self._door.arrive(request, self._longest_s(request))
        except BatonError as error:
            self._refuse(error)
            raise

    def _longest_s(self, request: GenerationRequest) -> float:
        """How long its client lets it wait, besides what its prompt takes. Raises `DeadlineExceeded` if not at all."""
        if request.first_token_s is None:
            return inf
        wish = place(request, PromptKeys(request.token_ids, request.cache_salt, request.lora_name))
        ahead = self._with.router.outlook(wish, self._with.workers.fleet(), self._with.clock())
        longest_s = request.first_token_s - (0.0 if ahead is None else ahead.ttft_s - ahead.queue_s)
        if longest_s <= 0:
            raise DeadlineExceeded(f"the prompt takes longer than its client waits ({request.first_token_s:g} s)")
        return longest_s

    async def _turn(self, visit: Visit) -> None:
        try:
            await visit.wait()
        except BatonError as error:
            self._refuse(error)
            raise
        except asyncio.CancelledError:
            self._with.observer.refused("cancelled")
            raise

    def _begin(self, request: GenerationRequest, visit: Visit) -> Journey:
        journey = Journey(request, self._with, visit.ticket.arrived_at, visit.routed)
        self._journeys.add(journey)
        return journey

    async def _end(self, journey: Journey, cause: Event) -> None:
        try:
            await journey.close(cause)
        finally:
            self._ended[journey.state] = self._ended.get(journey.state, 0) + 1
            self._ended_attempts += journey.attempts
            self._journeys.discard(journey)
