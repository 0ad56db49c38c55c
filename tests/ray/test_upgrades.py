"""Workers leave a fleet under load, by hand and because another version is deployed: no stream breaks, and every answer
is one version's, to the last token.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from configs.schema import BatonConfig
from tests.chaos.requests import References, Request, Requests, Shape
from tests.chaos.stream import ask
from tests.support.serving import Served, TestCluster, config_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

REQUESTS = Requests(11, Shape(most_prompt=300, least_answer=20, most_answer=150), leaving=0.0)
CLIENTS = 8
FINISH_S = 1.0


def version(tiny_model: str, **engine: Any) -> BatonConfig:
    pool = {"num_cpus": 0, "replicas": 2, "engine": {"kind": "simulated", "device_blocks": 2048, **engine}}
    return config_of(
        "simulated.yaml",
        model={"path": tiny_model, "served_name": "tiny"},
        prefill={**pool, "replicas": 1},
        decode=pool,
        gateway={"replicas": 2, "num_cpus": 0},
        timeouts={"drain_finish_s": FINISH_S, "drain_s": 60.0},
    )


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster, tiny_model: str) -> Iterator[Served]:
    """One prefill and two decode workers, and two gateways."""
    with cluster.serve(version(tiny_model)) as running:
        yield running


class Clients:
    """Ask one request after the other until told to stop; every answer is one version's or a problem."""

    def __init__(self, served: Served, versions: dict[str, References]) -> None:
        self.answered = dict.fromkeys(versions, 0)
        self.problems: list[str] = []
        self._served = served
        self._versions = versions
        self._over = asyncio.Event()

    async def run(self) -> None:
        numbers = itertools.count()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client(numbers))

    def finish(self) -> None:
        self._over.set()

    async def _client(self, numbers: Iterator[int]) -> None:
        while not self._over.is_set():
            await self._ask(REQUESTS[next(numbers)])

    async def _ask(self, request: Request) -> None:
        address = httpx.URL(self._served.url)
        answer = await ask(address.host, address.port, request.body(self._served.model), None)
        by = [name for name, references in self._versions.items() if answer.tokens == references.of(request)]
        if by:
            self.answered[by[0]] += 1
        else:
            said = answer.complaint or f"tokens of no version: {answer.tokens[:5]}…"
            self.problems.append(f"request {request.number}, {len(answer.tokens)} of {request.tokens} tokens: {said}")


async def test_a_worker_drained_by_hand_loses_no_stream_and_takes_work_again_when_it_is_undone(
    fleet: Served, tiny_model: str
) -> None:
    # Serve reads its flags when it is imported: not before the cluster's fixture has set them.
    from cluster.cli.far_workers import FarWorkers
    from cluster.cli.out_of_service import Watch, put_back, take_out

    clients = Clients(fleet, {"old": References(version(tiny_model), Path(tiny_model))})
    async with asyncio.TaskGroup() as group:
        group.create_task(clients.run())
        await asyncio.sleep(1.0)
        workers = await asyncio.to_thread(FarWorkers)
        assert len(await asyncio.to_thread(workers.views)) == 3
        busy = max(await asyncio.to_thread(workers.views), key=lambda each: (each.role == "decode", each.live_legs))
        watch = Watch(lambda _: None, asyncio.get_running_loop().time, time.sleep)
        last = await asyncio.to_thread(take_out, workers, busy.replica_id, 0.1, watch)
        assert (last.live_legs, last.draining) == (0, True)
        assert fleet.metric("baton_worker_draining", busy.replica_id) > 0
        await asyncio.to_thread(put_back, workers, busy.replica_id)
        await asyncio.sleep(1.0)
        after = {each.replica_id: each for each in await asyncio.to_thread(workers.views)}
        assert after[busy.replica_id].live_legs > 0
        clients.finish()
    assert clients.problems == []
    assert clients.answered["old"] >= CLIENTS
    await fleet.idle()


async def test_another_version_takes_over_under_load_and_every_answer_is_whole_and_of_one_version(
    fleet: Served, tiny_model: str
) -> None:
    from ray import serve

    from cluster.app import APPLICATION, build

    new = version(tiny_model, kv_bytes_per_token=512)
    references = {"old": version(tiny_model), "new": new}
    clients = Clients(fleet, {name: References(each, Path(tiny_model)) for name, each in references.items()})
    async with asyncio.TaskGroup() as group:
        group.create_task(clients.run())
        await asyncio.sleep(1.0)
        await asyncio.to_thread(serve.run, build(new), name=APPLICATION, route_prefix="/")
        await asyncio.sleep(2.0)
        clients.finish()
    assert clients.problems == []
    assert min(clients.answered.values()) >= CLIENTS, clients.answered
    await fleet.idle()


def test_a_redeploy_of_user_config_alone_changes_a_running_worker_and_restarts_none(
    cluster: TestCluster, tiny_model: str
) -> None:
    from ray import serve

    from cluster.cli.far_workers import FarWorkers

    args = version(tiny_model).model_dump(mode="json")
    args["security"]["cluster_secret"] = "of this test"
    application = {"name": "live", "route_prefix": None, "import_path": "tests.support.worker_app:build", "args": args}

    def deploy(finish_s: float) -> str:
        """The worker that has it, as soon as one does."""
        deployments = [{"name": "DecodeWorker", "user_config": {"drain_finish_s": finish_s}}]
        cluster.redeploy({**application, "deployments": deployments})
        end = time.monotonic() + 30
        while not (found := [each.replica_id for each in FarWorkers().views() if each.finish_s == finish_s]):
            assert time.monotonic() < end, "no worker heard of it"
            time.sleep(0.2)
        return found[0]

    try:
        assert deploy(7.0) == deploy(3.0)
    finally:
        serve.delete("live")
