"""Joins the data plane as a gateway that sends nothing: sees the fleet and its blocks as a router would.

For people who want to know how a request would be placed. Knows what workers report, which includes the work of all
gateways; what gateways have learnt about rates, or placed a moment ago, is theirs alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cluster.coordinator.routing_choice import Routing, choose_routing
from cluster.dataplane.pool import WorkerPool
from cluster.gateway.discovery import Discovery
from cluster.gateway.joining import pool_settings
from cluster.gateway.kv_index_feed import KvIndexFeed
from configs.schema import BatonConfig

SETTLE_S = 10.0


class NotSeen(Exception):
    """Workers are missing, or have not said in time what they hold."""


@dataclass(frozen=True, slots=True)
class Lookout:
    """The fleet, now, and a router that knows it."""

    pool: WorkerPool
    routing: Routing


@asynccontextmanager
async def lookout(config: BatonConfig, application: str, model_path: str) -> AsyncIterator[Lookout]:
    """This process is a driver of the Ray where `application` runs. Raises `NotSeen`."""
    from ray import serve

    pools = {"PrefillWorker": config.prefill, "DecodeWorker": config.decode}
    handles = [serve.get_deployment_handle(name, application) for name, pool in pools.items() if pool.replicas]
    routing = choose_routing(config)
    settings = await asyncio.to_thread(pool_settings, config, model_path)
    async with WorkerPool(settings, KvIndexFeed(routing.index, routing.gone)) as pool:
        discovery = Discovery(handles, pool.update)
        try:
            await _settle(pool, routing)
            yield Lookout(pool, routing)
        finally:
            discovery.close()


async def _settle(pool: WorkerPool, routing: Routing) -> None:
    """Return when every listed worker is connected and its device's blocks are known.

    The pool wakes for reports of load, which every worker sends each second, whatever else it tells.
    """
    try:
        await pool.wait_for(lambda _: _is_settled(pool, routing), SETTLE_S)
    except TimeoutError:
        links = [f"{each.replica_id}: {each.last_error or 'silent'}" for each in pool.statistics()]
        raise NotSeen(
            f"not all workers were seen within {SETTLE_S:g} s: {'; '.join(links) or 'none is listed'}"
        ) from None


def _is_settled(pool: WorkerPool, routing: Routing) -> bool:
    links = pool.statistics()
    loads = pool.loads()
    return bool(links) and len(loads) == len(links) and routing.index.statistics().exact == len(links)
