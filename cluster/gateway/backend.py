"""The seam behind the gateway: what turns a validated request into tokens.

Real: `cluster.coordinator.coordinator.Coordinator`. Fake: `tests.fakes.backend.FakeBackend`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Delta


class Backend(Protocol):
    """Places requests on workers and streams their tokens back."""

    def admit(self, outputs: int) -> None:
        """Return when `outputs` more may start now; reserves nothing.

        Raises `Overloaded` or `NoReplicaReady`.
        """
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Sequence[Delta]]:
        """The request's tokens as they come: in each step at most one merged delta for each output.

        Ends after every output has had a `finish_reason`. Closing or cancelling the iterator aborts the request
        everywhere. Raises `cluster.errors.BatonError`.
        """
        ...

    async def check_health(self) -> None:
        """Return when a request could be answered now; raises `cluster.errors.BatonError` when not."""
        ...
