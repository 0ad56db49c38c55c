"""What a request's consumer has not read yet: at most one merged delta for each output, so it is bounded."""

import asyncio

from cluster.dataplane.frames import Delta
from cluster.errors import BatonError


class DeltaQueue:
    """One producer, one consumer. What was put before a failure is still read."""

    def __init__(self) -> None:
        self._waiting: dict[int, Delta] = {}
        self._failure: BatonError | None = None
        self._ready = asyncio.Event()

    def put(self, delta: Delta) -> None:
        """Add new tokens of one output."""
        before = self._waiting.get(delta.index)
        if before is None:
            self._waiting[delta.index] = delta
            self._ready.set()
        else:
            before.absorb(delta)

    def fail(self, failure: BatonError) -> None:
        """Make `get` raise once it has returned what waits."""
        self._failure = failure
        self._ready.set()

    async def get(self) -> list[Delta]:
        """What waits, as soon as something does; raises the failure once nothing does.

        Ends with the engine, which finishes or fails every request.
        """
        await self._ready.wait()
        if not self._waiting and self._failure is not None:
            raise self._failure
        if self._failure is None:
            self._ready.clear()
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting
