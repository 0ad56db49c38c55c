"""A worker changes sides while requests run, over real TCP and real stores: every token is right, nothing is held."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Role, TakeRole
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import StoreAccess
from tests.support.store_thread import SECRET, over_tcp, running_store
from tests.support.two_nodes import WORKERS, Shape, TwoNodes, two_nodes
from tests.unit.engines.simulated.bench import prompt_of, reference, settings, write_model

SHAPE = Shape(block_size=16, max_model_len=512, device_blocks=512)
LENT = WORKERS[1]
ANSWER = 30
CLIENTS = 6
TURNS: tuple[Role, ...] = ("prefill", "decode", "prefill", "decode")


@asynccontextmanager
async def running(model: Path) -> AsyncIterator[TwoNodes]:
    """Two that decode at first."""
    mark = kv_fingerprint(settings(model)).digest()
    with running_store(mark, transport=over_tcp) as first, running_store(mark, transport=over_tcp) as second:
        access = [StoreAccess(store.socket_name, SECRET) for store in (first, second)]
        engines = [
            await SimulatedEngine.create(settings(model, device_blocks=SHAPE.device_blocks, store=each))
            for each in access
        ]
        async with two_nodes(str(model), engines, (first, second), SHAPE) as nodes:
            yield nodes


async def lend(nodes: TwoNodes, role: Role) -> None:
    """As the pool controller does; returns when the router sees it."""
    nodes.pool.take_role(LENT, TakeRole(role, nodes.pool.info(LENT).role_epoch, "a test"))
    await nodes.pool.wait_for(lambda fleet: fleet.replicas[LENT].role.value == role, 10.0)


async def test_a_worker_lent_to_prefill_and_back_drops_nothing_and_every_token_is_right(tmp_path: Path) -> None:
    model = write_model(tmp_path)
    async with running(model) as nodes:
        coordinator = Coordinator(
            nodes.pool,
            nodes.routing.router,
            nodes.routing.ledger,
            time.monotonic,
            random.Random(0),
            CoordinatorSettings(admission=AdmissionSettings(max_wait_s=None)),
            nodes.metrics,
        )
        over, answered, numbers = asyncio.Event(), asyncio.Queue[int](), itertools.count()

        async def client(number: int) -> None:
            sampling = msgspec.msgpack.encode({"max_tokens": ANSWER, "temperature": 0.0, "ignore_eos": True})
            while not over.is_set():
                prompt, tokens = prompt_of(150, next(numbers)), list[int]()
                async for deltas in coordinator.generate(GenerationRequest(f"r{number}", prompt, sampling, ANSWER)):
                    tokens += [token for delta in deltas for token in delta.token_ids]
                assert tokens == reference(settings(model), prompt, ANSWER)
                answered.put_nowait(number)

        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(client(number))
            for role in TURNS:
                await lend(nodes, role)
                async with asyncio.timeout(30.0):
                    for _ in range(3 * CLIENTS):
                        await answered.get()
            over.set()
        load = nodes.pool.loads()[LENT]
        assert load.counters["legs_prefill"] > 0
        assert load.counters["legs_decode"] > 0
        assert not any(name.startswith("legs_failed") for name in load.counters)
        assert nodes.routing.ledger.statistics().open_leases == 0
        nodes.routing.ledger.check()
