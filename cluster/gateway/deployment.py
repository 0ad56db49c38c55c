"""The gateway as a Serve deployment: everything behind its HTTP app is made here and closed here.

A replica's health is about itself. Whether the fleet can answer is what `/health` says: a gateway that is restarted
because workers are missing would help nobody.
"""

import asyncio
import os
import random
import time
from collections.abc import Mapping

from ray import serve
from ray.serve.handle import DeploymentHandle

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.observer import EndListener
from cluster.coordinator.routing_choice import Routing, choose_routing
from cluster.dataplane.pool import WorkerPool
from cluster.gateway.admission_metrics import AdmissionCollector
from cluster.gateway.discovery import Discovery
from cluster.gateway.joining import pool_settings
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.pool_keeper import PoolKeeper
from cluster.gateway.pool_metrics import PoolCollector
from cluster.gateway.routing_metrics import RoutingCollector
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.tracing import Tracing, exporting_to
from cluster.gateway.worker_metrics import WorkerCollector
from cluster.logs import join_serve_logs, log_kept
from cluster.models.fetch import resolve
from cluster.pools.controller import PoolController
from cluster.pools.settings import LendingSettings, lends
from configs.schema import BatonConfig, GatewayConfig, VllmEngineConfig
from kvtransfer.tenant import tenant_of
from routing.arrivals import Arrivals

# A gateway needs no accelerator. Without this the CUDA build of vLLM fails to start on a node that has none.
ENVIRONMENT = {"VLLM_TARGET_DEVICE": "cpu"}


@serve.ingress()
class Gateway:
    """One gateway replica. `workers` are the worker deployments' handles, by name."""

    def __init__(self, config: BatonConfig, workers: Mapping[str, DeploymentHandle]) -> None:
        join_serve_logs()
        self._config = config
        self._workers = workers
        self._pool: WorkerPool | None = None
        self._discovery: Discovery | None = None
        self._tracing: Tracing | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def __serve_build_asgi_app__(self) -> object:
        """Called by Serve in the replica, once."""
        os.environ.update(ENVIRONMENT)
        with log_kept():
            return await self._build()

    async def _build(self) -> object:
        # vLLM reads the environment when it is imported.
        from cluster.gateway.app import build_gateway_app

        config = self._config
        path = await asyncio.to_thread(resolve, config.model.path)
        routing = choose_routing(config)
        feed = KvIndexFeed(routing.index, routing.gone)
        self._pool = WorkerPool(await asyncio.to_thread(pool_settings, config, path), feed)
        metrics = GatewayMetrics()
        metrics.collect_from(WorkerCollector(self._pool.loads, self._pool.nodes))
        metrics.collect_from(RoutingCollector(routing))
        self._tracing = _tracing(config.gateway.otlp_traces_endpoint)
        coordinator = self._coordinator(routing, self._pool, metrics)
        metrics.collect_from(AdmissionCollector(lambda: coordinator.statistics().admission))
        settings = GatewaySettings(
            model_path=path,
            served_name=config.model.name,
            max_body_bytes=int(config.gateway.max_body_bytes),
            body_s=config.timeouts.body_s,
            explain_header=config.gateway.explain_header,
            max_model_len=config.model.max_model_len,
            api_args=config.gateway.api_args,
            engine_args=config.decode.engine.args if isinstance(config.decode.engine, VllmEngineConfig) else {},
        )
        app = await build_gateway_app(settings, coordinator, metrics)
        self._discovery = Discovery(tuple(self._workers.values()), self._pool.update)
        keeper = _keeper(config, self._pool, routing)
        metrics.collect_from(PoolCollector(self._pool.infos, keeper))
        if keeper is not None:
            self._keeping = asyncio.get_running_loop().create_task(keeper.run(), name="pool keeper")
        return app

    def _coordinator(self, routing: Routing, pool: WorkerPool, metrics: GatewayMetrics) -> Coordinator:
        listeners: list[EndListener] = [routing.learner(pool.fleet), metrics.reuse(pool.fleet)]
        if self._tracing is not None:
            listeners.append(self._tracing)
        return Coordinator(
            pool,
            routing.router,
            routing.ledger,
            time.monotonic,
            random.Random(),
            _coordinator_settings(self._config),
            metrics,
            listeners,
            Arrivals(routing.index, time.monotonic),
        )

    async def check_health(self) -> None:
        """Called by Serve. Listens again when the controller was gone for a while; live streams are not touched."""
        if self._keeping is not None and self._keeping.done():
            self._keeping.result()
        if self._pool is not None and self._discovery is not None and not self._discovery.is_listening:
            self._discovery = Discovery(tuple(self._workers.values()), self._pool.update)

    async def __del__(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        if self._discovery is not None:
            self._discovery.close()
        if self._pool is not None:
            await self._pool.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)


def _keeper(config: BatonConfig, pool: WorkerPool, routing: Routing) -> PoolKeeper | None:
    """None where nobody is lent but by hand: nobody says what is to be kept."""
    pools, itl_target_s = config.pools, config.router.itl_target_s
    if not lends(pools, itl_target_s):
        return None
    controller = PoolController(LendingSettings.of(pools, itl_target_s), routing.rates)
    return PoolKeeper(pool, controller, _is_first, pools.interval_s)


def _is_first() -> bool:
    """Serve gives a gateway that goes its rank to another."""
    rank = serve.get_replica_context().rank
    return rank is not None and rank.rank == 0


def _tracing(endpoint: str | None) -> Tracing | None:
    return Tracing(exporting_to(endpoint)) if endpoint is not None else None


def _coordinator_settings(config: BatonConfig) -> CoordinatorSettings:
    return CoordinatorSettings(
        max_attempts=config.gateway.max_attempts,
        max_moves=config.gateway.max_moves,
        request_s=config.timeouts.request_s,
        handoff_s=config.timeouts.handoff_s,
        replica_s=config.timeouts.replica_s,
        admission=_admission_settings(config.gateway),
    )


def _admission_settings(gateway: GatewayConfig) -> AdmissionSettings:
    weights = {tenant_of(salt): weight for salt, weight in gateway.admission.tenant_weights.items()}
    line = LineSettings(gateway.admission.max_waiting_requests, gateway.admission.max_waiting_tokens, weights)
    return AdmissionSettings(gateway.max_requests_in_flight, gateway.admission.max_wait_s, line)
