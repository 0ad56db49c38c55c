"""Behind `generate()`: admits requests, sends each on its journey, and knows what is in flight.

Invariant: a request counts as in flight from its first step until its iterator has ended or was closed; then it holds
no stream, no lease and no task.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from cluster.coordinator.admission import Admission
from cluster.coordinator.journey import Journey, outcome_of
from cluster.coordinator.lifecycle import Event, State
from cluster.coordinator.observer import EndListener, Observer
from cluster.coordinator.resources import CoordinatorSettings, HandoffIds, Resources
from cluster.coordinator.workers import GenerationRequest, Workers
from cluster.dataplane.frames import Delta
from cluster.errors import BatonError, NoReplicaReady
from routing.fleet import Role
from routing.ledger import Ledger
from routing.router import Rng, Router

__all__ = ["Coordinator", "CoordinatorSettings", "CoordinatorStatistics"]


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """A truthful snapshot. `ended` counts requests by the state they ended in; `attempts` and `refused` only grow."""

    in_flight: Mapping[State, int]
    outputs_in_flight: int
    ended: Mapping[State, int]
    attempts: int
    refused: int
    service_s: float | None


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
    ) -> None:
        self._with = Resources(workers, router, ledger, clock, rng, settings, observer, HandoffIds(rng), listeners)
        self._admission = Admission(settings.max_requests_in_flight)
        self._journeys: set[Journey] = set()
        self._ended: dict[State, int] = {}
        self._ended_attempts = 0
        self._refused = 0

    def admit(self, outputs: int = 1) -> None:
        """Return when `outputs` more may start now; reserves nothing.

        Raises `Overloaded`, `NoReplicaReady`, or `InvalidRequest` for more outputs than may ever be in flight.
        """
        try:
            self._admission.admit(outputs)
            self._require_decode()
        except BatonError as error:
            self._refuse(error)
            raise

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Sequence[Delta]]:
        """The request's deltas as they come: in each step at most one merged delta for each output.

        Closing or cancelling the iterator aborts both legs at once. Raises `Overloaded` before the first step when
        too many were admitted together, else whatever the request fails with.
        """
        journey = self._enter(request)
        cause = Event.BROKEN
        try:
            while not journey.answered:
                yield await journey.next()
        except (asyncio.CancelledError, GeneratorExit):
            cause = Event.CLIENT_GONE
            raise
        finally:
            try:
                await journey.close(cause)
            finally:
                self._leave(request, journey)

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
            outputs_in_flight=self._admission.in_flight,
            ended=dict(self._ended),
            attempts=self._ended_attempts + sum(journey.attempts for journey in self._journeys),
            refused=self._refused,
            service_s=self._admission.service_s,
        )

    def _require_decode(self) -> None:
        replicas = self._with.workers.fleet().replicas.values()
        if not any(replica.ready and replica.role is Role.DECODE for replica in replicas):
            raise NoReplicaReady("no decode replica is ready")

    def _refuse(self, error: BatonError) -> None:
        self._refused += 1
        self._with.observer.refused(outcome_of(error))

    def _enter(self, request: GenerationRequest) -> Journey:
        try:
            self._admission.enter(request.outputs)
        except BatonError as error:
            self._refuse(error)
            raise
        journey = Journey(request, self._with)
        self._journeys.add(journey)
        return journey

    def _leave(self, request: GenerationRequest, journey: Journey) -> None:
        self._admission.leave(request.outputs)
        if journey.answered:
            self._admission.finished(journey.age_s)
        self._ended[journey.state] = self._ended.get(journey.state, 0) + 1
        self._ended_attempts += journey.attempts
        self._journeys.discard(journey)
