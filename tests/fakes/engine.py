"""An engine that does what a test says, step by step, and shows what is asked of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from cluster.dataplane.frames import Delta
from cluster.engines.engine import BlocksChanged, EngineRequest, EngineStatistics
from cluster.errors import EngineFailed


@dataclass(slots=True)
class FakeRequest:
    """One request inside the engine. Closed: its iterator was closed or cancelled, or it ended."""

    request: EngineRequest
    steps: "asyncio.Queue[Delta | Exception]" = field(default_factory=asyncio.Queue)
    closed: bool = False

    def say(self, *token_ids: int, index: int = 0, finish: str | None = None, cached: int | None = None) -> None:
        self.steps.put_nowait(
            Delta(index, list(token_ids), "".join(f" {i}" for i in token_ids), finish, num_cached_tokens=cached)
        )

    def fail(self, error: Exception) -> None:
        self.steps.put_nowait(error)


class FakeEngine:
    """Implements `cluster.engines.engine.Engine`."""

    def __init__(self) -> None:
        self.requests: dict[str, FakeRequest] = {}
        self.running = 0
        self.loaded_blocks = 0.0
        self.healthy = True
        self.goes = asyncio.Event()
        self.goes.set()
        self.steps = 0
        self.dead = False
        self.closed = False
        self.changes: asyncio.Queue[Sequence[BlocksChanged] | EngineFailed] = asyncio.Queue()
        self._arrived = asyncio.Event()

    async def generate(self, request: EngineRequest) -> AsyncIterator[Delta]:
        made = self.requests[request.request_id] = FakeRequest(request)
        self._arrived.set()
        self.running += 1
        try:
            while True:
                step = await made.steps.get()
                if isinstance(step, Exception):
                    raise step
                self.steps += 1
                yield step
                if step.finish_reason is not None and step.index == 0:
                    return
        finally:
            made.closed = True
            self.running -= 1

    async def events(self) -> AsyncIterator[Sequence[BlocksChanged]]:
        while True:
            changes = await self.changes.get()
            if isinstance(changes, EngineFailed):
                raise changes
            yield changes

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            self.running,
            0,
            0,
            0.0,
            {"steps": float(len(self.requests)), "loaded_blocks": self.loaded_blocks},
            self.steps,
            self.dead,
        )

    async def check_health(self) -> None:
        if not self.healthy:
            raise EngineFailed("told to be ill")
        await self.goes.wait()
        self.steps += 1

    async def close(self) -> None:
        self.closed = True

    async def arrived(self, request_id: str) -> FakeRequest:
        """The request, as soon as the engine has it."""
        async with asyncio.timeout(10.0):
            while request_id not in self.requests:
                self._arrived.clear()
                await self._arrived.wait()
        return self.requests[request_id]
