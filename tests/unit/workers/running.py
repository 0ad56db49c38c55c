"""A worker with a fake engine and a fake store, and a real pool connected to it over TCP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import Fetch, Handoff, Role, WorkerInfo
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.stream import WorkerStream
from cluster.workers.pulse import PulseSettings
from cluster.workers.store_link import StoreLink
from cluster.workers.worker import Worker, WorkerSettings
from kvtransfer.errors import StoreLost
from tests.fakes.engine import FakeEngine
from tests.fakes.store import FakeStore
from tests.unit.dataplane.peers import DEADLINE_S, MODEL, SECRET, pool_settings

INFO = WorkerInfo("w1", "decode", "node", "fake", "tcp://here", "kv", 4, 4096, "epoch 1")

HEALTH = PulseSettings(probe_s=0.01, look_s=0.01)


@dataclass(frozen=True, slots=True)
class Running:
    worker: Worker
    engine: FakeEngine
    store: FakeStore
    pool: WorkerPool

    def open(self, leg: Leg) -> WorkerStream:
        return self.pool.open("w1", leg)


def leg(
    request_id: str = "r1",
    role: Role = "decode",
    handoff: Handoff | None = None,
    deadline_s: float = 60.0,
    outputs: int = 1,
    fetch: Fetch | None = None,
) -> Leg:
    sampling = msgspec.msgpack.encode({"max_tokens": 8, "n": outputs})
    request = GenerationRequest(request_id, [1, 2, 3, 4, 5], sampling, max_tokens=8, outputs=outputs)
    return Leg(role, request, sampling, handoff, deadline_s, fetch)


def handoff(handoff_id: str = "h1", source: str = "tcp://there", deadline_s: float = 30.0) -> Handoff:
    return Handoff(handoff_id, source, deadline_s)


@asynccontextmanager
async def running_worker(
    finish_s: float = 5.0, leave_s: float = 5.0, health: PulseSettings = HEALTH, **pool: Any
) -> AsyncIterator[Running]:
    engine, store = FakeEngine(), FakeStore()

    async def connect() -> FakeStore:
        if store.lost.is_set():
            raise StoreLost("still away")
        return store

    link = StoreLink(connect)
    await link.start()
    settings = WorkerSettings(INFO, SECRET, MODEL, "127.0.0.1", finish_s=finish_s, leave_s=leave_s, health=health)
    worker = Worker(settings, engine, link)
    address = await worker.start()
    try:
        async with WorkerPool(pool_settings(), **pool) as connected:
            connected.update({"w1": address})
            await connected.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), DEADLINE_S)
            yield Running(worker, engine, store, connected)
    finally:
        await worker.close()
