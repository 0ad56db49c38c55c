"""Both deployments grow while load rises and shrink when it has gone, and no stream notices."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from configs.load import Deployment
from configs.schema import BatonConfig
from configs.serve_file import HttpOptions
from tests.chaos.requests import References, Requests, Shape
from tests.support.serving import Served, TestCluster, config_of
from tests.support.traffic import Traffic

pytestmark = [
    pytest.mark.ray,
    pytest.mark.alone,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning"),
]

MANY = Requests(7, Shape(most_prompt=2000, least_answer=100, most_answer=200), leaving=0.0)
FEW = Requests(8, Shape(most_prompt=40, least_answer=200, most_answer=300), leaving=0.0)
REACTS_S = 90.0  # a replica has to start; Serve takes its time to end one


def configuration(tiny_model: str) -> BatonConfig:
    engine = {"kind": "simulated", "device_blocks": 2048, "decode_step_s": 0.010, "decode_request_s": 0.002}
    pool = {"num_cpus": 0, "replicas": 1, "max_replicas": 3, "engine": {**engine, "prefill_tokens_per_s": 4000}}
    return config_of(
        "simulated.yaml",
        model={"path": tiny_model, "served_name": "tiny"},
        prefill=pool,
        decode=pool,
        gateway={"replicas": 1, "num_cpus": 0, "admission": {"max_wait_s": 60}},
        router={"itl_target_s": 0.050},
        pools={"scale_up_after_s": 2.0, "scale_down_after_s": 5.0},
        timeouts={"drain_finish_s": 1.0, "drain_s": 60.0},
    )


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster, tiny_model: str) -> Iterator[Served]:
    """One of each to begin with; deployed as `serve deploy` does, since the policy is the application's."""
    from ray import serve

    from cluster.app import APPLICATION
    from cluster.runtime.instance import deploy

    config = configuration(tiny_model)
    deploy(Deployment("a test", APPLICATION, "/", HttpOptions(), config))
    try:
        served = Served(cluster.url, config.model.name)
        cluster.await_ready(served)
        yield served
    finally:
        serve.delete(APPLICATION)


async def test_both_pools_follow_the_load_and_every_stream_is_whole(fleet: Served, tiny_model: str) -> None:
    # Serve reads its flags when it is imported: not before the cluster's fixture has set them.
    from cluster.cli.far_workers import FarRoles
    from cluster.scaling_history import recall

    roles = await asyncio.to_thread(FarRoles)
    references = References(configuration(tiny_model), Path(tiny_model))

    async def until(holds: Callable[[Counter[str]], bool]) -> None:
        end = asyncio.get_running_loop().time() + REACTS_S
        while not holds(homes := Counter(view.home for view in await asyncio.to_thread(roles.views))):
            assert asyncio.get_running_loop().time() < end, homes
            await asyncio.sleep(0.5)

    async def under(requests: Requests, clients: int, holds: Callable[[Counter[str]], bool]) -> None:
        traffic = Traffic(fleet, references, requests, clients)
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run())
            await until(holds)
            traffic.finish()
        assert traffic.problems == []
        assert traffic.answered >= clients

    await under(MANY, 32, lambda homes: min(homes["prefill"], homes["decode"]) >= 2)
    await under(FEW, 2, lambda homes: homes == {"prefill": 1, "decode": 1})
    await fleet.idle()
    said = [change.why for change in recall()]
    assert said[0].startswith("1P1D to ")
    assert " to 1P1D started: prefill has work for " in said[-1]
