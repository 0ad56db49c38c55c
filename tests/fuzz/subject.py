"""What is fuzzed: a whole gateway behind a real HTTP server, over real workers, a real data plane and a real store.

vLLM's app with tool calls, our engine client, coordinator, router, link and worker; the engines are simulated, so that
answers cost nothing. Everything but the store runs in the caller's event loop, where it can be looked at: `at_rest`
says what of a request is left.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.routing_choice import Routing, choose_routing
from cluster.dataplane.frames import Role
from cluster.dataplane.pool import WorkerPool
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from cluster.gateway.app import build_gateway_app
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.settings import GatewaySettings
from cluster.models.tiny import ensure_tiny_llama
from cluster.workers.worker import Worker
from configs.schema import BatonConfig
from tests.support.store_thread import SECRET, StoreThread, running_store
from tests.support.two_nodes import Shape, running_worker
from tests.unit.dataplane.peers import pool_settings

MODEL_LENGTH = 256
BODY_S = 0.3
REST_S = 20.0
STORE_SLOTS = 4096
_KV_BYTES = 16
_SHAPE = Shape(block_size=16, max_model_len=MODEL_LENGTH, device_blocks=512)
_ROLES: dict[str, Role] = {"p0": "prefill", "d0": "decode", "d1": "decode"}


@dataclass(frozen=True, slots=True)
class Subject:
    """The running whole."""

    port: int
    coordinator: Coordinator
    routing: Routing
    workers: tuple[Worker, ...]
    engines: tuple[SimulatedEngine, ...]
    store: StoreThread
    metrics: GatewayMetrics

    def left(self) -> dict[str, object]:
        """What somebody holds now, by what it is; empty at rest."""
        statistics = self.coordinator.statistics()
        slots = self.store.look(lambda store: store.slot_statistics())
        held = {
            "requests": sum(statistics.in_flight.values()),
            "leases": self.routing.ledger.statistics().open_leases,
            "streams": sum(worker._server.streams for worker in self.workers),
            "legs": sum(len(worker._legs) for worker in self.workers),
            "engine jobs": sum(len(engine._jobs) for engine in self.engines),
            "pins": slots.pins,
            "writing slots": slots.writing,
            "legs in flight on /metrics": sum(_gauge(self.metrics.render(), "baton_legs_in_flight")),
        }
        return {what: count for what, count in held.items() if count}

    async def at_rest(self) -> dict[str, object]:
        """What is still held when nothing is asked any more; waits until nothing is, or for `REST_S`."""
        end = time.monotonic() + REST_S
        while (left := self.left()) and time.monotonic() < end:  # noqa: ASYNC110  # nobody announces rest
            await asyncio.sleep(0.01)
        self.coordinator.check()
        self.routing.ledger.check()
        self.routing.index.check()
        for engine in self.engines:
            engine.check()
        self.store.look(lambda store: store.check())
        return left


@asynccontextmanager
async def running_subject() -> AsyncIterator[Subject]:
    """One prefill and two decode workers. Everything is closed afterwards."""
    model = ensure_tiny_llama()
    fingerprint = kv_fingerprint(_engine_settings(model, None)).digest()
    async with AsyncExitStack() as stack:
        store = stack.enter_context(running_store(fingerprint, STORE_SLOTS * _SHAPE.block_size * _KV_BYTES))
        engines, workers = [], []
        for name, role in _ROLES.items():
            engine = await SimulatedEngine.create(_engine_settings(model, StoreAccess(store.socket_name, SECRET, name)))
            engines.append(engine)
            workers.append(await stack.enter_async_context(running_worker(name, store, engine, _SHAPE, role)))
        routing = choose_routing(BatonConfig.model_validate({"model": {"path": str(model)}}))
        pool = await stack.enter_async_context(WorkerPool(pool_settings(), KvIndexFeed(routing.index, routing.gone)))
        pool.update({worker.info.replica_id: worker.address for worker in workers})
        await pool.wait_for(lambda fleet: sum(r.ready for r in fleet.replicas.values()) == len(_ROLES), REST_S)
        metrics = GatewayMetrics()
        coordinator = _coordinator(pool, routing, metrics)
        app = await build_gateway_app(_gateway_settings(model), coordinator, metrics)
        port = await stack.enter_async_context(_listening(app))
        yield Subject(port, coordinator, routing, tuple(workers), tuple(engines), store, metrics)


@asynccontextmanager
async def _listening(app: object) -> AsyncIterator[int]:
    """As Serve's direct ingress does it: uvicorn with httptools. The port."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # signals are the caller's
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(REST_S):
            while not server.started:  # noqa: ASYNC110  # uvicorn announces nothing
                await asyncio.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def _coordinator(pool: WorkerPool, routing: Routing, metrics: GatewayMetrics) -> Coordinator:
    settings = CoordinatorSettings(request_s=30.0, handoff_s=5.0, admission=AdmissionSettings(max_outputs=64))
    rng = random.Random(1)
    return Coordinator(
        pool, routing.router, routing.ledger, time.monotonic, rng, settings, metrics, [routing.learner(pool.fleet)]
    )


def _gateway_settings(model: Path) -> GatewaySettings:
    return GatewaySettings(
        model_path=str(model),
        served_name="tiny",
        max_body_bytes=2 * 1024 * 1024,
        body_s=BODY_S,
        max_model_len=MODEL_LENGTH,
        api_args={"tool_call_parser": "hermes", "enable_auto_tool_choice": True},
    )


def _engine_settings(model: Path, store: StoreAccess | None) -> SimulatedSettings:
    return SimulatedSettings(
        model,
        "fuzz",
        max_model_len=MODEL_LENGTH,
        block_size=_SHAPE.block_size,
        device_blocks=_SHAPE.device_blocks,
        kv_bytes_per_token=_KV_BYTES,
        prefill_tokens_per_s=1e9,
        decode_step_s=0.0,
        decode_request_s=0.0,
        store=store,
    )


def _gauge(exposition: bytes, name: str) -> list[float]:
    lines = exposition.decode().splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
