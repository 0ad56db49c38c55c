"""The coordinator over the real data plane: both legs on real sockets, driven by hand."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from cluster.coordinator.coordinator import Coordinator
from cluster.coordinator.lifecycle import State
from cluster.dataplane.frames import Emitted
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.server import ServerSettings, WorkerServer
from cluster.errors import DeadlineExceeded
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from tests.simulation.recorder import Recorder
from tests.simulation.world import SETTINGS, request
from tests.unit.dataplane.peers import (
    DEADLINE_S,
    IDLE,
    MODEL,
    SECRET,
    ManualLegs,
    RunningWorker,
    pool_settings,
    until,
    worker_info,
)


@dataclass(frozen=True, slots=True)
class Cluster:
    prefill: RunningWorker
    decode: RunningWorker
    coordinator: Coordinator
    ledger: Ledger
    pool: WorkerPool

    async def idle(self) -> None:
        """Both workers have heard that nothing is wanted any more, and nothing is reserved."""
        await until(lambda: self.prefill.server.streams == self.decode.server.streams == 0)
        assert self.ledger.statistics().open_leases == 0
        self.ledger.check()


@asynccontextmanager
async def cluster(request_s: float = 20.0) -> AsyncIterator[Cluster]:
    """One prefill and one decode worker, and a gateway's coordinator connected to both."""
    workers = {}
    for replica_id, role in (("p0", "prefill"), ("d0", "decode")):
        legs = ManualLegs()
        server = WorkerServer(ServerSettings(worker_info(replica_id, role), SECRET, MODEL), legs)
        workers[replica_id] = RunningWorker(server, legs, await server.listen("127.0.0.1"))
        server.publish_load(IDLE)
    ledger = Ledger()
    async with WorkerPool(pool_settings()) as pool:
        pool.update({replica_id: worker.address for replica_id, worker in workers.items()})
        await pool.wait_for(lambda fleet: sum(r.ready for r in fleet.replicas.values()) == 2, DEADLINE_S)
        coordinator = Coordinator(
            pool,
            LeastWork(LeastWorkSettings(), ledger),
            ledger,
            time.monotonic,
            random.Random(1),
            replace(SETTINGS, request_s=request_s),
            Recorder(),
        )
        yield Cluster(workers["p0"], workers["d0"], coordinator, ledger, pool)
    for worker in workers.values():
        await worker.server.close()


async def test_a_request_goes_through_both_workers_and_ends() -> None:
    async with cluster() as c:
        stream = c.coordinator.generate(request("r1", max_tokens=3))
        step = asyncio.ensure_future(anext(stream))
        prefill, decode = await c.prefill.legs.started("r1"), await c.decode.legs.started("r1")
        assert decode.generate.handoff.handoff_id == prefill.generate.handoff.handoff_id
        assert decode.generate.handoff.source == "tcp://store"
        prefill.say(0, finish="length")
        await until(lambda: c.coordinator.statistics().in_flight == {State.WAITING: 1})
        decode.say(7)
        assert [d.token_ids for d in await step] == [[7]]
        decode.say(8, 9, finish="length")
        assert [[d.token_ids for d in deltas] async for deltas in stream] == [[[8, 9]]]
        await c.idle()


async def test_a_lost_prefill_worker_is_told_to_decode() -> None:
    async with cluster() as c:
        stream = c.coordinator.generate(request("r1", max_tokens=1))
        step = asyncio.ensure_future(anext(stream))
        decode = await c.decode.legs.started("r1")
        await c.prefill.legs.started("r1")
        await c.prefill.server.close()
        await until(lambda: decode.lost_source)
        decode.say(7, finish="length")
        assert [d.token_ids for d in await step] == [[7]]
        await stream.aclose()
        await c.idle()


async def test_closing_the_iterator_aborts_both_legs() -> None:
    async with cluster() as c:
        stream = c.coordinator.generate(request("r1", max_tokens=9))
        step = asyncio.ensure_future(anext(stream))
        prefill, decode = await c.prefill.legs.started("r1"), await c.decode.legs.started("r1")
        decode.say(7)
        await step
        await stream.aclose()
        await until(lambda: prefill.aborted and decode.aborted)
        await c.idle()


async def test_a_stream_goes_on_where_it_was_over_the_next_connection_to_its_worker() -> None:
    async with cluster() as c:
        stream = c.coordinator.generate(request("r1", max_tokens=9))
        step = asyncio.ensure_future(anext(stream))
        decode = await c.decode.legs.started("r1")
        decode.say(7)
        await step
        step = asyncio.ensure_future(anext(stream))
        for gateway in list(c.decode.server._gateways):
            gateway.connection.abort("cut")
        await until(lambda: decode.aborted and c.decode.legs.legs["r1"] is not decode)
        resumed = c.decode.legs.legs["r1"]
        assert resumed.generate.emitted == [Emitted(0, [7], len(" 7"))]
        assert resumed.generate.token_ids == decode.generate.token_ids
        resumed.say(8, finish="stop")
        assert [d.token_ids for d in await step] == [[8]]
        await stream.aclose()
        await c.idle()


async def test_the_deadline_wakes_a_reader_and_aborts_both_legs() -> None:
    async with cluster(request_s=0.2) as c:
        with pytest.raises(DeadlineExceeded):
            await anext(c.coordinator.generate(request("r1", max_tokens=9)))
        await c.idle()
