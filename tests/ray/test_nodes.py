"""Eight prefill and eight decode workers on four nodes in two zones: where they land, and what becomes of
the requests when a node fails and when one comes. The head is a node of its own, with the gateway.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.gateway.route_header import HEADER, parse
from configs.schema import BatonConfig
from tests.chaos import rest
from tests.chaos.load import Load, Target
from tests.chaos.requests import References, Requests, Shape
from tests.support.machines import Machine
from tests.support.serving import Served, TestCluster, config_of

pytestmark = [pytest.mark.ray, pytest.mark.alone, pytest.mark.timeout(600)]

ZONES = {"c": "east", "d": "east", "e": "west", "f": "west"}
SEATS = {"prefill": 2.0, "decode": 2.0}
"""Replicas of each pool that a node has room for."""
CLIENTS = 16
NODE_DIGITS = 12
"""How much of a node's id metrics and stores show."""

GONE_S = 60.0
"""Ray's head finds a machine that says nothing dead in a quarter of a minute, and then tells Serve."""
JOINED_S = 60.0
"""Four processes start and import everything, beside the load."""


@pytest.fixture(scope="module")
def machines(cluster: TestCluster) -> Iterator[dict[str, Machine]]:
    """The four nodes, by name."""
    joined = {name: cluster.join(name, {"zone": zone}, resources=SEATS) for name, zone in ZONES.items()}
    yield joined
    for machine in joined.values():
        machine.remove()


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster, machines: dict[str, Machine], tiny_model: str) -> Iterator[Served]:
    with cluster.serve(configuration(tiny_model)) as running:
        yield running


def configuration(tiny_model: str) -> BatonConfig:
    engine = {"kind": "simulated", "device_blocks": 1024, "prefill_tokens_per_s": 3000, "decode_step_s": 0.04}
    pool = {"replicas": 8, "num_cpus": 0, "engine": engine}
    return config_of(
        "simulated.yaml",
        model={"path": tiny_model, "served_name": "tiny"},
        prefill={**pool, "resources": {"prefill": 1}},
        decode={**pool, "resources": {"decode": 1}},
        gateway={"label_selector": {"node": "a"}, "explain_header": True, "admission": {"max_wait_s": 60}},
        store={"bytes": "16MiB", "handoff_ttl_s": 20},
        router={"rates": {"remote_latency_s": 0.05}},  # less than a hundredth of a request's time would be a tie
    )


@asynccontextmanager
async def under_load(served: Served, tiny_model: str, seed: int) -> AsyncIterator[Load]:
    """Sixteen clients while the block runs, of which one in ten hangs up; every answer was right."""
    target = Target(
        served.url,
        served.model,
        Requests(seed, Shape(most_prompt=1200)),
        References(configuration(tiny_model), Path(tiny_model)),
    )
    load = Load(target, CLIENTS, itertools.count())
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        yield load
        load.finish()
    print(load.total)
    assert [*load.total.complaints, *load.total.wrong] == []
    assert load.total.whole > CLIENTS


async def eventually(holds: Callable[[], bool], deadline_s: float) -> float:
    """Seconds until the condition holds; fails after `deadline_s`."""
    began = time.monotonic()
    while not await asyncio.to_thread(holds):
        assert time.monotonic() - began < deadline_s, f"not within {deadline_s:g} s"
        await asyncio.sleep(0.2)
    return time.monotonic() - began


def nodes_of_workers(served: Served) -> dict[str, str]:
    """By replica, as the gateway tells it."""
    found = [name.split('"') for name in served.metrics() if name.startswith("baton_store_up{")]
    return {replica: node for _, node, _, replica, _ in found}


async def nodes_of_stores() -> Counter[str]:
    from cluster.cli.store_actors import find_stores  # imports ray, which reads its environment then

    return Counter(named.node[:NODE_DIGITS] for named in await find_stores(None))


async def test_every_node_has_its_share_of_both_pools_and_one_store(
    fleet: Served, machines: dict[str, Machine]
) -> None:
    nodes = {machine.node_id[:NODE_DIGITS] for machine in machines.values()}
    await rest.whole(fleet, 16, deadline_s=60.0)
    assert Counter(nodes_of_workers(fleet).values()) == dict.fromkeys(nodes, 4)
    assert await nodes_of_stores() == dict.fromkeys(nodes, 1)


async def test_gateways_know_the_zone_of_every_worker(
    fleet: Served, machines: dict[str, Machine], tiny_model: str
) -> None:
    # Serve reads its flags when it is imported: not before the cluster's fixture has set them.
    from cluster.app import APPLICATION, with_secret
    from cluster.gateway.lookout import lookout

    async with lookout(with_secret(configuration(tiny_model)), APPLICATION, tiny_model) as seen:
        zones = {info.node_id: info.zone for info in seen.pool.infos()}
    assert zones == {machines[name].node_id: zone for name, zone in ZONES.items()}


async def test_a_hand_off_stays_on_its_node_while_there_is_no_reason_to_leave_it(fleet: Served) -> None:
    where, pairs = nodes_of_workers(fleet), []
    with fleet.client() as client:
        for number in range(8):
            body = {
                "model": fleet.model,
                "prompt": [300 + (number * 77 + i) % 1000 for i in range(1800)],
                "max_tokens": 2,
            }
            told = parse(client.post("/v1/completions", json=body).headers[HEADER.decode()])
            pairs.append((where[told["prefill"]], where[told["decode"]]))
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    assert len({node for node, _ in pairs}) > 1


async def test_a_node_that_fails_costs_no_request_and_leaves_nothing_behind(
    fleet: Served, machines: dict[str, Machine], tiny_model: str
) -> None:
    lost = machines["d"].node_id[:NODE_DIGITS]
    async with under_load(fleet, tiny_model, seed=2):
        await asyncio.sleep(4.0)
        await asyncio.to_thread(machines["d"].die)
        gone_s = await eventually(lambda: lost not in nodes_of_workers(fleet).values(), GONE_S)
        forgotten_s = await eventually(lambda: indexed(fleet) == {"exact": 12, "degraded": 0}, GONE_S)
        await asyncio.sleep(4.0)
    print(f"not shown after {gone_s:.1f} s, forgotten after {gone_s + forgotten_s:.1f} s")
    assert await rest.held(fleet, deadline_s=30.0) == ""


def indexed(served: Served) -> dict[str, float]:
    return {state: served.metric("baton_index_replicas", f'state="{state}"') for state in ("exact", "degraded")}


async def test_a_node_that_comes_is_used_within_seconds_and_has_its_store(
    cluster: TestCluster, fleet: Served, machines: dict[str, Machine], tiny_model: str
) -> None:
    async with under_load(fleet, tiny_model, seed=3):
        machines["g"] = cluster.join("g", {"zone": "east"}, resources=SEATS)  # Ray does it in no other thread
        new = machines["g"].node_id[:NODE_DIGITS]

        def used() -> bool:
            replicas = [replica for replica, node in nodes_of_workers(fleet).items() if node == new]
            return any(fleet.metric("baton_worker_legs_", replica) for replica in replicas)

        joined_s = await eventually(lambda: new in nodes_of_workers(fleet).values(), JOINED_S)
        used_s = await eventually(used, 10.0)
        await eventually(lambda: indexed(fleet) == {"exact": 16, "degraded": 0}, JOINED_S)
    print(f"its first worker was there after {joined_s:.1f} s, and used {used_s:.1f} s later")
    assert await nodes_of_stores() == dict.fromkeys(set(nodes_of_workers(fleet).values()), 1)
    assert (await rest.held(fleet, deadline_s=30.0), await rest.spoilt()) == ("", "")
