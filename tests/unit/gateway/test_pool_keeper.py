"""The gateway that has the pool controller decide: what it asks, whom it tells, what it shows."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from prometheus_client.registry import CollectorRegistry

from cluster.dataplane.frames import TakeRole, WorkerInfo
from cluster.gateway.pool_keeper import PoolKeeper
from cluster.gateway.pool_metrics import PoolCollector
from cluster.pools.controller import PoolController
from cluster.pools.settings import LendingSettings
from routing.fleet import Fleet, Role
from routing.rates import Rates
from tests.unit.pools.members import IDLE, PROFILE, decoding, member

SETTINGS = LendingSettings(itl_target_s=0.020)


class Workers:
    """Three that prefill and one that decodes, with a batch that is too large; `p0` is pinned."""

    def __init__(self, versions: int = 1) -> None:
        self.orders: list[tuple[str, TakeRole]] = []
        self._versions = versions

    def fleet(self) -> Fleet:
        members = [member(f"p{i}", Role.PREFILL, IDLE) for i in range(3)] + [member("d0", Role.DECODE, decoding(16))]
        replicas = [replace(one.replica, kv_fingerprint=str(i % self._versions)) for i, one in enumerate(members)]
        return Fleet({replica.replica_id: replica for replica in replicas})

    def infos(self) -> Sequence[WorkerInfo]:
        roles = {"p0": "prefill", "p1": "prefill", "p2": "prefill", "d0": "decode"}
        return [
            WorkerInfo(name, role, "n", "fake", "", "kv", 64, 4096, "e", role_epoch=7, pinned=name == "p0")  # type: ignore[arg-type]
            for name, role in roles.items()
        ]

    def take_role(self, replica_id: str, order: TakeRole) -> None:
        self.orders.append((replica_id, order))


def keeper(workers: Workers, decides: bool = True) -> PoolKeeper:
    return PoolKeeper(workers, PoolController(SETTINGS, Rates(PROFILE)), lambda: decides, 0.001)


def test_those_that_are_lent_are_told_from_which_role_and_why() -> None:
    workers = Workers()
    one = keeper(workers)
    for tick in range(5):
        one.look(tick * 0.25)
    why = "3P1D to 2P2D: prefill has work for 0.0 replicas, decode for 1.3 (ITL)"
    assert workers.orders[0] == ("p1", TakeRole("decode", 7, why))
    assert "p0" not in dict(workers.orders)


def test_while_two_versions_overlap_nobody_is_lent() -> None:
    workers = Workers(versions=2)
    one = keeper(workers)
    for tick in range(20):
        one.look(tick * 0.25)
    assert workers.orders == []


async def test_another_gateway_only_looks_on() -> None:
    workers = Workers()
    running = asyncio.create_task(keeper(workers, decides=False).run())
    await asyncio.sleep(0.02)
    running.cancel()
    assert workers.orders == []


def test_metrics_say_who_does_what_and_what_is_needed() -> None:
    workers = Workers()
    one = keeper(workers)
    for tick in range(5):
        one.look(tick * 0.25)
    registry = CollectorRegistry()
    registry.register(PoolCollector(workers.infos, one))
    assert registry.get_sample_value("baton_pool_replicas", {"role": "prefill"}) == 3
    assert registry.get_sample_value("baton_pool_lent_replicas", {"role": "decode"}) == 0
    assert registry.get_sample_value("baton_pool_needed_replicas", {"role": "decode"}) == one.needs.decode
    assert registry.get_sample_value("baton_pool_changes_total", {"role": "decode"}) == len(workers.orders)
