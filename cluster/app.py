"""All the wiring: a `BatonConfig` becomes a Ray Serve application. Read this file first.

    client ──HTTP──▶ Gateway ×g ──frames──▶ PrefillWorker ×p ─┐ blocks, by content
                        │                                     ▼
                        └───────frames──▶ DecodeWorker ×d ◀── the node's KV store

Three deployments, sized separately. A gateway speaks HTTP, decides who does what, and sends each request to a prefill
and a decode worker at once (`cluster.gateway`, `cluster.coordinator`). A worker is an engine with a socket
(`cluster.workers`). Serve places, scales, health-checks and restarts replicas and carries no tokens: each gateway holds
one connection to each worker (`cluster.dataplane`). The workers of a node share its KV store
(`cluster.workers.store_actor`), which a worker starts when there is none.

`docs/journey.md` follows one request through all of it. In a Serve file: `import_path: cluster.app:build`.
"""

from collections.abc import Mapping

from ray import serve

from cluster.autoscaling import autoscaling_config
from cluster.gateway.deployment import Gateway
from cluster.secret import cluster_secret
from cluster.workers.deployment import DecodeWorker, PrefillWorker
from configs.profiles import with_rates
from configs.schema import BatonConfig, PoolConfig

APPLICATION = "baton"

MAX_CALLS = 1024
"""Of one worker at once. Requests pass Serve by; what comes this way are questions of `baton status` and Serve's own,
so the bound is never felt, while Serve's default of 5 would let a few slow answers hide a worker from the next."""

HEALTH_PERIOD_S = 2.0
"""How often Serve asks a replica; it replaces one that says three times that it is ill. A worker knows from the look it
has on its engine, and its streams have gone on elsewhere by then."""

HEALTH_TIMEOUT_S = 30.0
"""A replica answers within a turn of its loop, on a machine that is busy; three times so long silent, it is stuck."""


def build(config: BatonConfig) -> serve.Application:
    """The application `serve deploy`, `serve run` and `baton serve` start.

    Workers are bound into the gateway, so that Serve starts and ends all of them together.
    """
    sealed = with_secret(with_rates(config))
    workers = {
        name: serve.deployment(cls).options(name=name, **worker_options(pool, sealed)).bind(sealed)
        for name, cls, pool in (
            ("PrefillWorker", PrefillWorker, config.prefill),
            ("DecodeWorker", DecodeWorker, config.decode),
        )
        if pool.replicas
    }
    return serve.deployment(Gateway).options(name="Gateway", **gateway_options(config)).bind(sealed, workers)


def with_secret(config: BatonConfig) -> BatonConfig:
    """The same configuration with the cluster's secret in it, so that every replica gets the same one."""
    secret = cluster_secret(config.security.cluster_secret)
    return config.model_copy(update={"security": config.security.model_copy(update={"cluster_secret": secret})})


def worker_options(pool: PoolConfig, config: BatonConfig) -> dict[str, object]:
    """What Serve needs to know of a pool. A replica going away waits for its live streams by itself."""
    needs = {"num_cpus": pool.num_cpus, "num_gpus": pool.num_gpus, "resources": dict(pool.resources)}
    return {
        **_how_many(pool, config),
        "ray_actor_options": {**needs, **_on_nodes(pool.label_selector)},
        "max_ongoing_requests": MAX_CALLS,
        "graceful_shutdown_timeout_s": config.timeouts.drain_s,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": HEALTH_TIMEOUT_S,
    }


def _how_many(pool: PoolConfig, config: BatonConfig) -> dict[str, object]:
    if config.scales:
        return {"autoscaling_config": autoscaling_config(pool, config)}
    return {"num_replicas": pool.replicas}


def gateway_options(config: BatonConfig) -> dict[str, object]:
    """What Serve needs to know of the gateways."""
    return {
        "num_replicas": config.gateway.replicas,
        "ray_actor_options": {"num_cpus": config.gateway.num_cpus, **_on_nodes(config.gateway.label_selector)},
        "max_ongoing_requests": config.gateway.max_ongoing_requests,
        "graceful_shutdown_timeout_s": config.timeouts.drain_s,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": HEALTH_TIMEOUT_S,
    }


def _on_nodes(label_selector: Mapping[str, str]) -> dict[str, object]:
    return {"label_selector": dict(label_selector)} if label_selector else {}
