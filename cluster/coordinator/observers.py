"""Several observers as one."""

from collections.abc import Sequence

from cluster.coordinator.observer import Ended, Observer
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Role
from routing.router import Decision, Predicted


class Observers:
    """Implements `Observer`: tells each of `all`, in order."""

    def __init__(self, all: Sequence[Observer]) -> None:
        self._all = tuple(all)

    def started(self, request: GenerationRequest) -> None:
        for observer in self._all:
            observer.started(request)

    def routed(self, decision: Decision) -> None:
        for observer in self._all:
            observer.routed(decision)

    def legs(self, role: Role, change: int) -> None:
        for observer in self._all:
            observer.legs(role, change)

    def first_token(self, ttft_s: float) -> None:
        for observer in self._all:
            observer.first_token(ttft_s)

    def predicted(self, predicted: Predicted, ttft_s: float) -> None:
        for observer in self._all:
            observer.predicted(predicted, ttft_s)

    def tokens(self, count: int, gap_s: float | None) -> None:
        for observer in self._all:
            observer.tokens(count, gap_s)

    def ended(self, ended: Ended) -> None:
        for observer in self._all:
            observer.ended(ended)

    def refused(self, reason: str) -> None:
        for observer in self._all:
            observer.refused(reason)
