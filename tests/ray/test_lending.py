"""Workers change sides under load: by the pool controller as traffic turns, and by hand. No request is the worse.

Eight workers, of which six prefill at first, and two gateways.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from configs.schema import BatonConfig
from tests.chaos.requests import References, Requests, Shape
from tests.support.serving import Served, TestCluster, config_of
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

LONG_ANSWERS = Requests(5, Shape(most_prompt=40, least_answer=150, most_answer=250), leaving=0.0)
LONG_PROMPTS = Requests(6, Shape(most_prompt=3000, least_answer=1, most_answer=4), leaving=0.0)
REACTS_S = 10.0


def configuration(tiny_model: str) -> BatonConfig:
    engine = {"kind": "simulated", "device_blocks": 2048, "decode_step_s": 0.010, "decode_request_s": 0.002}
    pool = {"num_cpus": 0, "engine": {**engine, "prefill_tokens_per_s": 4000}}
    return config_of(
        "simulated.yaml",
        model={"path": tiny_model, "served_name": "tiny"},
        prefill={**pool, "replicas": 6},
        decode={**pool, "replicas": 2},
        gateway={"replicas": 2, "num_cpus": 0, "admission": {"max_wait_s": 60}},  # a turn finds few replicas, and waits
        router={"itl_target_s": 0.050},
        pools={"cooldown_s": 5.0},
    )


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster, tiny_model: str) -> Iterator[Served]:
    """Both targets are set: workers are lent by themselves."""
    with cluster.serve(configuration(tiny_model)) as running:
        yield running


async def test_roles_follow_the_traffic_and_a_pin_holds(fleet: Served, tiny_model: str) -> None:
    # Serve reads its flags when it is imported: not before the cluster's fixture has set them.
    from cluster.cli.far_workers import FarRoles
    from cluster.cli.roles import RoleView, lend, unpin

    roles = await asyncio.to_thread(FarRoles)
    references = References(configuration(tiny_model), Path(tiny_model))

    async def views() -> Sequence[RoleView]:
        return await asyncio.to_thread(roles.views)

    async def until_decoders(wanted: range) -> None:
        end = asyncio.get_running_loop().time() + REACTS_S
        while (decoders := sum(view.role == "decode" for view in await views())) not in wanted:
            assert asyncio.get_running_loop().time() < end, f"{decoders} decode"
            await asyncio.sleep(0.25)

    at_first = await views()
    for requests, clients, wanted in ((LONG_ANSWERS, 48, range(3, 8)), (LONG_PROMPTS, 24, range(1, 3))):
        traffic = Traffic(fleet, references, requests, clients)
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run())
            await until_decoders(wanted)
            traffic.finish()
        assert traffic.problems == []
        assert traffic.answered >= clients
    assert {view.replica_id for view in await views()} == {view.replica_id for view in at_first}
    changes = [change for view in await views() for change in view.role_history]
    assert all("prefill has work for" in change.why for change in changes)

    pinned = await asyncio.to_thread(lend, roles, 3, "decode", True)
    traffic = Traffic(fleet, references, LONG_PROMPTS, 24)
    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.run())
        await asyncio.sleep(4.0)
        assert all(view.role == "decode" for view in await views() if view.replica_id in pinned)
        assert sorted(await asyncio.to_thread(unpin, roles)) == sorted(pinned)
        traffic.finish()
    assert traffic.problems == []
    await fleet.idle()
