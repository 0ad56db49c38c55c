"""A node's store as a worker sees it, ending waits when a test says so."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from kvtransfer.errors import KvTransferError, StoreLost
from kvtransfer.inspection import Oldest, StoreStatistics, Traffic
from kvtransfer.protocol import HandoffEnded, HandoffOutcome, Watched
from kvtransfer.tenant import NO_TENANT, Tenant


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait asked of the store."""

    handoff_id: str
    source: str | None
    deadline_s: float
    ended: "asyncio.Future[HandoffEnded]" = field(compare=False)
    tenant: Tenant = NO_TENANT

    @property
    def present(self) -> int:
        """Blocks pinned for the waiter."""
        return self.ended.result().present_blocks if self.ended.done() and not self.ended.cancelled() else 0

    def end(self, outcome: HandoffOutcome, announced: int = 4, present: int = 4, pulled: int = 4) -> None:
        self.ended.set_result(HandoffEnded(1, outcome, announced, present, pulled, 1000 * pulled, 0.01))


class FakeStore:
    """Implements `cluster.workers.store_link.StoreSession`."""

    def __init__(self, address: str = "tcp://here") -> None:
        self.address = address
        self.waits: dict[str, Wait] = {}
        self.fetched: dict[str, list[int]] = {}
        self.released: Counter[str] = Counter()
        self.concluded: Counter[str] = Counter()
        self.labels: dict[bytes, int] = {}
        self.lost = asyncio.Event()
        self.changes: asyncio.Queue[Watched | KvTransferError] = asyncio.Queue()
        self.changes.put_nowait(Watched(0, True, [], [], []))
        self._changed = asyncio.Event()

    async def await_handoff(
        self, handoff_id: str, source: str | None, deadline_s: float, tenant: Tenant
    ) -> HandoffEnded:
        if self.lost.is_set():
            raise StoreLost("closed")
        wait = self.waits[handoff_id] = Wait(
            handoff_id, source, deadline_s, asyncio.get_running_loop().create_future(), tenant
        )
        self._changed.set()
        return await wait.ended

    async def fetch(
        self, handoff_id: str, labels: Sequence[int], source: str, deadline_s: float, tenant: Tenant
    ) -> HandoffEnded:
        self.fetched[handoff_id] = list(labels)
        return await self.await_handoff(handoff_id, source, deadline_s, tenant)

    async def conclude(self, handoff_id: str) -> None:
        if self.lost.is_set():
            raise StoreLost("closed")
        self.concluded[handoff_id] += 1

    async def release(self, handoff_id: str) -> None:
        if self.lost.is_set():
            raise StoreLost("closed")
        self.released[handoff_id] += 1

    async def statistics(self) -> StoreStatistics:
        if self.lost.is_set():
            raise StoreLost("closed")
        held = self.waits.keys() - self.released.keys()
        pins = sum(self.waits[name].present for name in held)
        traffic, oldest = [Traffic("pulled", "tcp", 5, 320)], Oldest("engine", 2.5)
        counts = (7, 1, 2, 0, pins, len(held), 1, *range(4))
        return StoreStatistics(1, "epoch", 10, 64, *counts, {"room": 4}, {"load": 1}, traffic, None, oldest)

    async def watch(self) -> AsyncGenerator[Watched, None]:
        while True:
            change = await self.changes.get()
            if isinstance(change, KvTransferError):
                raise change
            yield change

    async def label(self, labels: Mapping[bytes, int]) -> int:
        self.labels |= labels
        return len(labels)

    async def until_lost(self) -> None:
        await self.lost.wait()

    async def close(self) -> None:
        self.lost.set()

    def lose(self) -> None:
        """The store's process died."""
        self.lost.set()
        for wait in self.waits.values():
            if not wait.ended.done():
                wait.ended.set_exception(StoreLost("died"))

    async def waiting(self, handoff_id: str) -> Wait:
        """The wait, as soon as the store is asked."""
        async with asyncio.timeout(10.0):
            while handoff_id not in self.waits:
                self._changed.clear()
                await self._changed.wait()
        return self.waits[handoff_id]
