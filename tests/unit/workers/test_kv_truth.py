"""The gateway's index is what engines and stores hold, whatever happens to them."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from cluster.errors import ReplicaLost
from routing.index import Tier
from tests.unit.engines.simulated.bench import clear_prefix_cache, held_blocks, prompt_of, write_model
from tests.unit.workers.kv_fleet import DEADLINE_S, DEVICE_BLOCKS, Fleet, running_fleet, start_member, until, whole

START_S = 60.0
"""What a worker's process may take to import what it needs, on a machine that is busy."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def some_prompt(rng: random.Random) -> list[int]:
    """Prompts share prefixes of some blocks."""
    shared = prompt_of(16 * rng.randrange(6), first=rng.randrange(3))
    return [*shared, *prompt_of(rng.randrange(1, 100), first=100 + rng.randrange(8))]


async def traffic(fleet: Fleet, rng: random.Random, requests: int) -> None:
    """Some are aborted in the middle."""

    async def one() -> None:
        replica_id = rng.choice(sorted(fleet.members))
        with suppress(ReplicaLost), closing(fleet.open(replica_id, some_prompt(rng), rng.choice([None, "salt"]))) as it:
            if rng.random() < 0.2:
                await it.next()
            else:
                await whole(it)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        for _ in range(requests):
            tasks.create_task(one())


@pytest.mark.parametrize("seed", range(3))
async def test_the_index_is_true_after_traffic_evictions_resets_losses_and_reconnects(model: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with running_fleet(model, ["a", "b"], ["c"]) as fleet:
        for _ in range(12):
            await traffic(fleet, rng, requests=rng.randrange(8))
            await rng.choice([clear_a_device, cut_a_connection, lose_a_frame, restart_a_store, rest])(fleet, rng)
            await traffic(fleet, rng, requests=rng.randrange(4))
            await fleet.settled()
        statistics = fleet.index.statistics()
        assert (statistics.exact, statistics.degraded, statistics.refused) == (3, 0, 0)


async def rest(fleet: Fleet, rng: random.Random) -> None:
    """Nothing happens."""


async def clear_a_device(fleet: Fleet, rng: random.Random) -> None:
    clear_prefix_cache(fleet.members[rng.choice(sorted(fleet.members))].engine)


async def cut_a_connection(fleet: Fleet, rng: random.Random) -> None:
    await fleet.listed()
    connection = fleet.pool._links[rng.choice(sorted(fleet.members))]._connection
    assert connection is not None
    connection.abort("the test cuts it")
    await fleet.pool.wait_for(lambda found: found.replicas.keys() != fleet.members.keys(), DEADLINE_S)
    await fleet.listed()


async def lose_a_frame(fleet: Fleet, rng: random.Random) -> None:
    await fleet.listed()
    (gateway,) = fleet.members[rng.choice(sorted(fleet.members))].worker._server._gateways
    assert gateway._kv is not None
    gateway._kv._sequence += 1


async def restart_a_store(fleet: Fleet, rng: random.Random) -> None:
    node = rng.choice(fleet.nodes)
    await asyncio.to_thread(node.store.kill)
    node.store_is_up = False
    if rng.random() < 0.5:
        await fleet.settled()
    await asyncio.to_thread(node.store.start)
    node.store_is_up = True


async def test_a_lost_frame_is_noticed_and_the_connection_begins_anew(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_fleet(model, ["a"]) as fleet:
        await fleet.settled()
        await lose_a_frame(fleet, random.Random(0))
        with pytest.raises(ReplicaLost):
            await whole(fleet.open("a", prompt_of(64)))
        await fleet.listed()
        await fleet.settled()
        assert fleet.pool.statistics()[0].connects == 2
        assert "KV events number 3 came instead of 2" in caplog.text


async def test_what_a_tiny_device_evicted_is_known_on_the_host_until_the_store_evicts_it(model: Path) -> None:
    async with running_fleet(model, ["a"]) as fleet:
        for first in range(4):
            await whole(fleet.open("a", prompt_of(100, first)))
        await until(lambda: held_blocks(fleet.members["a"].engine) == 0)
        await fleet.settled()
        (device,), (host,) = fleet.device_known().values(), fleet.host_known().values()
        assert host > device > set()
        for first in range(4, 8):
            await whole(fleet.open("a", prompt_of(100, first)))
        await fleet.settled()
        assert fleet.evictions > 0
        assert host - fleet.host_known()["node 0"]


async def test_a_gateway_that_comes_late_learns_everything_at_once(model: Path) -> None:
    async with running_fleet(model, ["a", "b"]) as fleet:
        for name in fleet.members:
            await whole(fleet.open(name, prompt_of(60)))
        await fleet.settled()
        await fleet.pool.close()
        assert (fleet.index.statistics().places, fleet.index.statistics().degraded) == (0, 0)
        await fleet.listed()
        await fleet.settled()
        assert fleet.index.statistics().exact == 2
        assert {found.kv_blocks for found in fleet.pool.fleet().replicas.values()} == {DEVICE_BLOCKS}


async def test_a_dead_worker_is_degraded_an_unlisted_one_dropped_and_its_successor_begins_anew(model: Path) -> None:
    async with running_fleet(model, ["a", "b"]) as fleet:
        for first, name in enumerate(fleet.members):
            await whole(fleet.open(name, prompt_of(80, first)))
        await fleet.settled()
        (node,) = fleet.nodes
        member = node.members.pop("b")
        await member.worker.close()
        await fleet.pool.wait_for(lambda found: found.replicas.keys() == {"a"}, DEADLINE_S)
        statistics = fleet.index.statistics()
        assert (statistics.exact, statistics.degraded) == (1, 1)
        await fleet.listed()
        assert fleet.index.statistics().degraded == 0
        node.members["b"] = await start_member("b", node, model)
        await fleet.listed()
        await fleet.settled()
        assert fleet.device_known()["b"] == set()
        successor = node.members["b"].worker
        await until(lambda: set(successor._blocks.snapshot(Tier.HOST)) == fleet.host_truth()["node 0"])
        await whole(fleet.open("b", prompt_of(80, first=1)))
        await fleet.settled()
        assert fleet.device_known()["b"]


async def test_a_worker_killed_under_load_leaves_the_index_at_once(model: Path) -> None:
    async with running_fleet(model, ["a"]) as fleet, worker_process(model, fleet) as process:
        await whole(fleet.open("killed", prompt_of(64)))
        await until(lambda: bool(fleet.device_known(["killed"])["killed"]))
        stream = fleet.open("killed", prompt_of(128, first=8))
        await stream.next()
        process.kill()
        with pytest.raises(ReplicaLost) as lost:
            await whole(stream)
        assert "silent" not in str(lost.value), "it took the deadline of a silent connection"
        assert fleet.device_known(["killed"]) == {"killed": set()}
        assert fleet.index.statistics().degraded == 1
        await fleet.listed()
        assert fleet.index.statistics().degraded == 0


@asynccontextmanager
async def worker_process(model: Path, fleet: Fleet) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker called "killed", known to the gateway."""
    command = [sys.executable, "-m", "tests.unit.workers.worker_process", str(model), fleet.nodes[0].store.socket_name]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            address = (await process.stdout.readline()).decode().strip()
        fleet.pool.update({"killed": address, **{name: m.address for name, m in fleet.members.items()}})
        await fleet.pool.wait_for(lambda found: "killed" in found.replicas, DEADLINE_S)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
