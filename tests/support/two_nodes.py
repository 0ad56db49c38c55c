"""Two decode workers that stand for two nodes, each with a store of its own and TCP between them, and the production
coordinator, router and index in front of them, all in this process. The test says which worker a request goes to, or
leaves it to the router.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.routing_choice import Routing, choose_routing
from cluster.dataplane.frames import Role, WorkerInfo
from cluster.dataplane.pool import WorkerPool
from cluster.engines.engine import Engine
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.gateway.metrics import GatewayMetrics
from cluster.workers.store_link import StoreLink
from cluster.workers.worker import Worker, WorkerSettings
from configs.schema import BatonConfig
from kvtransfer.aclient import AsyncStoreClient
from routing.arrivals import Arrivals
from routing.block_keys import PromptKeys
from routing.fleet import Fleet
from routing.router import Decision, Predicted, Rng, Router, RouteRequest
from tests.support.store_thread import SECRET, StoreThread
from tests.unit.dataplane.peers import DEADLINE_S, MODEL, pool_settings
from tests.unit.dataplane.peers import SECRET as GATEWAY_SECRET

WORKERS = ("w0", "w1")

SLOW_S = 0.1
"""A fetch is waited for as long as computing is worth, and a busy machine must not make it late."""


class Reached(Protocol):
    """A store, in whatever process."""

    fingerprint: str
    socket_name: str


@dataclass
class Directed:
    """The deployment's router, for requests that only one of the workers may get, or each where `to` is None."""

    router: Router
    to: str | None = WORKERS[0]
    decisions: list[Decision] = field(default_factory=list)

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        others = frozenset(WORKERS) - {self.to} if self.to is not None else frozenset()
        decision = self.router.route(replace(request, exclude=request.exclude | others), fleet, now, rng)
        self.decisions.append(decision)
        return decision

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return self.router.outlook(request, fleet, now)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the workers tell of their engines."""

    block_size: int
    max_model_len: int
    device_blocks: int


@dataclass(frozen=True, slots=True)
class TwoNodes:
    """The cluster, and what is known of it from outside."""

    shape: Shape
    routing: Routing
    router: Directed
    pool: WorkerPool
    coordinator: Coordinator
    metrics: GatewayMetrics

    def counter(self, worker: str, name: str) -> float:
        """One of a worker's counters."""
        return self.pool.loads()[worker].counters.get(name, 0.0)

    async def settle(self, worker: str, tokens: Sequence[int]) -> None:
        """Return when the gateway knows that the worker's node holds these, and what was loaded there."""
        keys = PromptKeys(tokens[:-1]).at(self.shape.block_size)
        async with asyncio.timeout(DEADLINE_S):
            while self._on_node(worker, keys) != len(keys):  # noqa: ASYNC110  # the index announces nothing
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)

    def _on_node(self, worker: str, keys: Any) -> int:
        store = self.pool.fleet().replicas[worker].store
        return self.routing.index.longest_prefix(keys, time.monotonic()).stores.get(store, 0)


@asynccontextmanager
async def two_nodes(
    model: str, engines: Sequence[Engine], stores: Sequence[StoreThread], shape: Shape, token_s: float = SLOW_S
) -> AsyncIterator[TwoNodes]:
    """Owns the engines, which are closed afterwards. The router believes a token of prompt to take `token_s`."""
    rates = {"prefill_token_s": token_s}
    routing = choose_routing(BatonConfig.model_validate({"model": {"path": model}, "router": {"rates": rates}}))
    router = Directed(routing.router)
    async with (
        running_worker(WORKERS[0], stores[0], engines[0], shape) as first,
        running_worker(WORKERS[1], stores[1], engines[1], shape) as second,
        WorkerPool(pool_settings(), KvIndexFeed(routing.index, routing.gone)) as pool,
    ):
        pool.update({WORKERS[0]: first.address, WORKERS[1]: second.address})
        await pool.wait_for(lambda fleet: sum(r.ready for r in fleet.replicas.values()) == len(WORKERS), DEADLINE_S)
        metrics = GatewayMetrics()
        coordinator = Coordinator(
            pool,
            router,
            routing.ledger,
            time.monotonic,
            random.Random(0),
            CoordinatorSettings(),
            metrics,
            arrivals=Arrivals(routing.index, time.monotonic),
        )
        yield TwoNodes(shape, routing, router, pool, coordinator, metrics)


@asynccontextmanager
async def running_worker(
    name: str, store: Reached, engine: Engine, shape: Shape, role: Role = "decode"
) -> AsyncIterator[Worker]:
    """A worker on a node of its own. Owns the engine."""
    link = StoreLink(lambda: AsyncStoreClient.connect(store.socket_name, store.fingerprint, name, SECRET, 5.0))
    await link.start()
    info = WorkerInfo(
        replica_id=name,
        role=role,
        node_id=f"node {name}",
        engine="test",
        store_address=link.address,
        kv_fingerprint=store.fingerprint,
        block_size_tokens=shape.block_size,
        max_model_len=shape.max_model_len,
        epoch=name,
        kv_blocks=shape.device_blocks,
    )
    worker = Worker(WorkerSettings(info, GATEWAY_SECRET, MODEL, "127.0.0.1"), engine, link)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.close()
