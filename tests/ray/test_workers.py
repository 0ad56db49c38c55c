"""Worker deployments with simulated engines under Serve: hand-over through real stores, on one node and between two."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import Delta, Handoff, LegReport, Role
from cluster.dataplane.link import PoolSettings
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.stream import WorkerStream
from cluster.errors import ReplicaLost
from cluster.models.identity import model_digest
from cluster.runtime.ticket import NothingRuns
from configs.schema import BatonConfig
from tests.support.serving import TestCluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SECRET = "of these tests"
TOKENS = 12
PROMPT = [(7 * i) % 500 + 3 for i in range(100)]
WHOLE_BLOCKS = 6


@dataclass(frozen=True, slots=True)
class Workers:
    """One prefill and one decode worker."""

    model: str
    prefill: Any
    decode: Any

    def status(self, handle: Any) -> dict[str, Any]:
        return dict(handle.status.remote().result(timeout_s=30))

    def addresses(self) -> dict[str, str]:
        found = [self.status(handle) for handle in (self.prefill, self.decode)]
        return {status["role"]: status["address"] for status in found}

    def await_another(self, before: dict[str, str]) -> None:
        """Return when Serve has replaced the decode worker."""
        from ray.exceptions import RayError

        end = time.monotonic() + 90
        while time.monotonic() < end:
            try:
                if self.addresses()["decode"] != before["decode"]:
                    return
            except (RayError, TimeoutError):
                pass
            time.sleep(0.2)
        raise TimeoutError("no other decode worker")

    def pool(self) -> WorkerPool:
        return WorkerPool(PoolSettings("tests", SECRET.encode(), model_digest(self.model)))


def config(model: str, prefill_node: str, decode_node: str, **store: Any) -> BatonConfig:
    def pool(node: str) -> dict[str, Any]:
        engine = {"kind": "simulated", "speed": 2.0, "decode_step_s": 0.02, "device_blocks": 1024}
        return {"engine": engine, "num_cpus": 0, "label_selector": {"node": node}}

    return BatonConfig.model_validate(
        {
            "model": {"path": model, "max_model_len": 2048},
            "prefill": pool(prefill_node),
            "decode": pool(decode_node),
            "store": {"bytes": 16 * 2**20, "idle_exit_s": 2.0, **store},
            "timeouts": {"drain_s": 20.0},
            "security": {"cluster_secret": SECRET},
        }
    )


@contextmanager
def deployed(run: str, model: str, prefill_node: str, decode_node: str) -> Iterator[Workers]:
    """Both workers, each an application of its own, whose names begin with `run`."""
    # Serve reads its flags when it is imported: not before the cluster's fixture has set them.
    from ray import serve

    from cluster.workers.deployment import DecodeWorker, PrefillWorker

    settings = config(model, prefill_node, decode_node)
    pools = {f"{run}-prefill": (PrefillWorker, prefill_node), f"{run}-decode": (DecodeWorker, decode_node)}
    try:
        yield Workers(model, *(_deploy(name, cls, settings, node) for name, (cls, node) in pools.items()))
    finally:
        for name in pools:
            serve.delete(name)


def _deploy(name: str, cls: type, settings: BatonConfig, node: str) -> Any:
    from ray import serve

    deployment = serve.deployment(cls).options(
        ray_actor_options={"num_cpus": 0, "label_selector": {"node": node}},
        graceful_shutdown_timeout_s=settings.timeouts.drain_s,
        health_check_period_s=1.0,
    )
    handle = serve.run(deployment.bind(settings), name=name, route_prefix=None)
    if not handle.is_initialized:
        handle._init(_run_router_in_separate_loop=True)
    return handle


@pytest.fixture(scope="module")
def one_node(cluster: TestCluster, tiny_model: str) -> Iterator[Workers]:
    with deployed("one", tiny_model, "a", "a") as workers:
        yield workers


def leg(role: Role, handoff: Handoff | None = None, tokens: int = TOKENS, prompt: Sequence[int] = PROMPT) -> Leg:
    n = 1 if role == "prefill" else tokens
    sampling = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": n, "min_tokens": n, "ignore_eos": True})
    request = GenerationRequest(f"r{time.monotonic_ns()}", prompt, sampling, max_tokens=n)
    return Leg(role, request, sampling, handoff, 60.0)


async def connected(pool: WorkerPool, workers: Workers) -> dict[str, str]:
    """Wait for both; their replica ids are their roles here."""
    addresses = await asyncio.to_thread(workers.addresses)
    pool.update(addresses)
    await pool.wait_for(lambda fleet: sum(r.ready for r in fleet.replicas.values()) == 2, 30.0)
    return addresses


async def answer(pool: WorkerPool, replica: str, one: Leg) -> Delta:
    """The whole answer of one leg, merged."""
    stream = pool.open(replica, one)
    whole: Delta | None = None
    async with asyncio.timeout(60):
        while whole is None or whole.finish_reason is None:
            for delta in await stream.next():
                if whole is None:
                    whole = delta
                else:
                    whole.absorb(delta)
    return whole


async def read_to_the_end(stream: WorkerStream) -> None:
    while stream.open:
        await stream.next()
    await stream.next()


def store_names() -> list[str]:
    """Of all store actors, those of earlier deployments that are still to leave included."""
    import ray

    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["namespace"] == "baton"]


def store_at(address: str) -> str:
    """The name of the store that other stores reach at `address`."""
    import ray

    def is_there(name: str) -> bool:
        try:
            return ray.get(ray.get_actor(name, namespace="baton").endpoint.remote(), timeout=30).address == address
        except (ray.exceptions.RayActorError, ValueError):
            return False  # it has just left

    (found,) = [name for name in store_names() if is_there(name)]
    return found


def kill_store(address: str) -> None:
    """Kill the store at `address`; Ray restarts it."""
    import ray

    ray.kill(ray.get_actor(store_at(address), namespace="baton"), no_restart=False)


def take_down(application: str) -> None:
    """Delete an application and wait until its replicas have ended."""
    from ray import serve

    serve.delete(application, _blocking=True)


def await_no_store(name: str) -> None:
    """Return when the store has left."""
    end = time.monotonic() + 30
    while name in store_names():
        assert time.monotonic() < end, "the store is still there"
        time.sleep(0.2)


async def hand_over(pool: WorkerPool, prompt: Sequence[int]) -> tuple[Delta, Delta]:
    """Both legs at once, as the coordinator sends them."""
    handoff_id = f"h{time.monotonic_ns()}"
    source = Handoff(handoff_id, pool.info("prefill").store_address, 30.0)
    legs = leg("prefill", Handoff(handoff_id), prompt=prompt), leg("decode", source, prompt=prompt)
    first, second = await asyncio.gather(answer(pool, "prefill", legs[0]), answer(pool, "decode", legs[1]))
    return first, second


def report(delta: Delta) -> LegReport:
    assert delta.report is not None
    return delta.report


async def test_blocks_move_through_the_nodes_store_and_decode_computes_only_the_rest(one_node: Workers) -> None:
    async with one_node.pool() as pool:
        await connected(pool, one_node)
        prefill, decode = await hand_over(pool, PROMPT)
        alone = await answer(pool, "prefill", leg("decode"))
        assert (prefill.token_ids, prefill.finish_reason) == ([], "length")
        assert (decode.token_ids, len(decode.token_ids)) == (alone.token_ids, TOKENS)
        assert decode.num_cached_tokens == WHOLE_BLOCKS * 16
        done = report(decode)
        assert (done.handoff_outcome, done.announced_blocks, done.loaded_blocks) == (
            "ready",
            WHOLE_BLOCKS,
            WHOLE_BLOCKS,
        )
        assert (done.pulled_blocks, done.recomputed_blocks) == (0, 0)
        assert pool.info("prefill").store_address == pool.info("decode").store_address


@pytest.mark.parametrize("comes_back", [False, True], ids=["leaves", "its node fails, and Ray hopes"])
async def test_a_store_that_is_gone_while_people_look_is_passed_over(one_node: Workers, comes_back: bool) -> None:
    import ray

    from cluster.cli.store_actors import find_stores
    from cluster.workers.store_actor import NAMESPACE, PREFIX

    class Going:
        def endpoint(self) -> None:
            os._exit(1) if comes_back else ray.actor.exit_actor()

    options = {"name": f"{PREFIX}0-{comes_back}-0", "namespace": NAMESPACE, "max_restarts": -1 if comes_back else 0}
    async with one_node.pool() as pool:
        await connected(pool, one_node)
        address = pool.info("decode").store_address
        going = ray.remote(Going).options(num_cpus=0, **options).remote()
        assert address in [each.address for each in await find_stores(None)]
        ray.kill(going)


async def test_people_see_the_store_through_its_actor(one_node: Workers) -> None:
    from cluster.cli import stores
    from cluster.cli.store_actors import find_stores

    async with one_node.pool() as pool:
        await connected(pool, one_node)
        await hand_over(pool, [token + 2 for token in PROMPT])
        address = pool.info("decode").store_address
        (named,) = [each for each in await find_stores(None) if each.address == address]
        assert [each.address for each in await find_stores(named.node)].count(address) == 1
        (seen,) = await stores.statistics([named])
        assert (seen.result.committed_blocks >= WHOLE_BLOCKS, seen.result.writing_slots) == (True, 0)
        (verified,) = await stores.verify([named], lambda *_: None)
        assert (verified.result.looked_at >= WHOLE_BLOCKS, verified.result.corrupt) == (True, [])
        (dropped,) = await stores.drop([named], [""])
        assert dropped.result.dropped == verified.result.looked_at
        with pytest.raises(NothingRuns, match="no KV store runs on node 'elsewhere'; there are: "):
            await find_stores("elsewhere")


async def test_blocks_come_from_the_other_nodes_store(cluster: TestCluster, tiny_model: str) -> None:
    with deployed("two", tiny_model, "b", "a") as workers:
        async with workers.pool() as pool:
            await connected(pool, workers)
            prompt = [token + 1 for token in PROMPT]
            _, decode = await hand_over(pool, prompt)
            alone = await answer(pool, "prefill", leg("decode", prompt=prompt))
            assert decode.token_ids == alone.token_ids
            done = report(decode)
            assert (done.handoff_outcome, done.pulled_blocks, done.loaded_blocks) == (
                "ready",
                WHOLE_BLOCKS,
                WHOLE_BLOCKS,
            )
            assert pool.info("prefill").store_address != pool.info("decode").store_address


async def test_a_simulated_worker_loads_neither_vllm_nor_torch(one_node: Workers) -> None:
    status = await asyncio.to_thread(one_node.status, one_node.decode)
    files = {Path(mapped.path).name for mapped in psutil.Process(status["pid"]).memory_maps()}
    assert not [name for name in files if "torch" in name or "vllm" in name]


async def test_a_killed_store_comes_back_empty_and_is_used_again(one_node: Workers) -> None:
    async with one_node.pool() as pool:
        await connected(pool, one_node)
        before = pool.info("decode").store_address
        await asyncio.to_thread(kill_store, before)
        async with asyncio.timeout(60):
            while before in (pool.info("decode").store_address, pool.info("prefill").store_address):
                await pool._next_change()
        prompt = [token + 2 for token in PROMPT]
        async with asyncio.timeout(60):
            while True:  # the engines' own connections to the store come back by themselves
                _, decode = await hand_over(pool, prompt)
                if report(decode).loaded_blocks == WHOLE_BLOCKS:
                    break
                prompt = [token + 1 for token in prompt]


async def test_a_killed_worker_fails_its_streams_and_serve_brings_another(one_node: Workers) -> None:
    async with one_node.pool() as pool:
        before = await connected(pool, one_node)
        stream = pool.open("decode", leg("decode", tokens=500))
        await stream.next()
        status = await asyncio.to_thread(one_node.status, one_node.decode)
        os.kill(status["pid"], signal.SIGKILL)
        with pytest.raises(ReplicaLost, match="decode is gone"):
            await read_to_the_end(stream)
        await asyncio.to_thread(one_node.await_another, before)
        await connected(pool, one_node)
        assert len((await answer(pool, "decode", leg("decode"))).token_ids) == TOKENS


async def test_a_replica_that_is_taken_down_finishes_its_streams_and_its_store_leaves(
    cluster: TestCluster, tiny_model: str
) -> None:
    with deployed("leaving", tiny_model, "b", "b") as workers:
        async with workers.pool() as pool:
            await connected(pool, workers)
            store = await asyncio.to_thread(store_at, pool.info("decode").store_address)
            live = asyncio.ensure_future(answer(pool, "decode", leg("decode", tokens=200)))
            await pool.wait_for(lambda fleet: fleet.replicas["decode"].load.running == 1, 10.0)
            await asyncio.to_thread(take_down, "leaving-decode")
            assert len((await live).token_ids) == 200
    await asyncio.to_thread(await_no_store, store)
