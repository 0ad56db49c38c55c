"""Prefill and decode workers over real stores, with the production coordinator in front of them, in this process.

Tokens of a simulated engine depend on every byte of its blocks, so a fault that spoils one gives wrong tokens.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.routing_choice import Routing
from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import Delta, Handoff, Role
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.stream import WorkerStream
from cluster.engines.simulated.engine import SimulatedEngine
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.gateway.metrics import GatewayMetrics
from cluster.workers.worker import Worker
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.inspection import StoreStatistics
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from tests.support.store_thread import SECRET
from tests.support.two_nodes import Reached, Shape, running_worker
from tests.unit.dataplane.peers import DEADLINE_S, pool_settings
from tests.unit.engines.simulated.bench import has_store, held_blocks, prompt_of, reference, settings

ANSWER_TOKENS = 12
PROMPT_TOKENS = 200
PAUSE_S = 0.02
"""Between two requests of a client: a test that waits for something else does not keep the machine busy."""
BLOCK = 16
PROMPT_BLOCKS = PROMPT_TOKENS // BLOCK
EVERYBODY_WAITS = AdmissionSettings(max_wait_s=None)
SHAPE = Shape(BLOCK, max_model_len=512, device_blocks=512)


@dataclass(frozen=True, slots=True)
class Member:
    """One worker, by what the gateway calls it."""

    name: str
    worker: Worker
    engine: SimulatedEngine
    store: Reached


@dataclass(frozen=True, slots=True)
class Pools:
    """The cluster. What is asked of it is checked against tokens that were computed without any engine."""

    used: SimulatedSettings
    members: Sequence[Member]
    pool: WorkerPool
    coordinator: Coordinator
    ledger: Ledger
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def ask(self, prompt: Sequence[int]) -> None:
        """One request, answered with exactly the right tokens."""
        await self._right(self.coordinator.generate(self.request(prompt)), prompt)

    async def ask_decode(self, prompt: Sequence[int], handoff_id: str) -> None:
        """The decode leg alone, of a hand-off that is announced to its own node's store."""
        request = self.request(prompt)
        leg = Leg("decode", request, request.sampling, Handoff(handoff_id, "", DEADLINE_S), DEADLINE_S)
        await self._right(_deltas(self.pool.open("decode 0", leg)), prompt)

    async def ask_together(self, prompt: Sequence[int], times: int) -> None:
        """The same request so many times at once."""
        async with asyncio.TaskGroup() as clients:
            for _ in range(times):
                clients.create_task(self.ask(prompt))

    def request(self, prompt: Sequence[int], tokens: int = ANSWER_TOKENS) -> GenerationRequest:
        """A request for so many tokens."""
        sampling = msgspec.msgpack.encode({"max_tokens": tokens, "temperature": 0.0, "ignore_eos": True})
        return GenerationRequest(f"r{next(self.numbers)}", list(prompt), sampling, tokens)

    async def _right(self, answer: AsyncIterator[Sequence[Delta]], prompt: Sequence[int]) -> None:
        tokens: list[int] = []
        async with asyncio.timeout(4 * DEADLINE_S):
            async for deltas in answer:
                for delta in deltas:
                    tokens += delta.token_ids
        assert tokens == reference(self.used, list(prompt), ANSWER_TOKENS)

    @asynccontextmanager
    async def load(self, at_once: int = 4) -> AsyncIterator["Load"]:
        """Requests with prompts of their own, `at_once` at any time, until the block ends; all are answered then."""
        load = Load(self)
        async with asyncio.TaskGroup() as clients:
            for _ in range(at_once):
                clients.create_task(load.client())
            try:
                yield load
            finally:
                load.over = True

    def counted(self, *names: str) -> float:
        """The sum of these counters over all workers."""
        counters = [member.worker.load().counters for member in self.members]
        return sum(each.get(name, 0.0) for each in counters for name in names)

    async def statistics(self, store: Reached) -> StoreStatistics:
        """What a store says of itself."""
        client = await AsyncStoreClient.connect(store.socket_name, store.fingerprint, "test", SECRET, DEADLINE_S)
        try:
            return await client.statistics()
        finally:
            await client.close()

    async def stores_are_used(self) -> None:
        """Return when every engine and every worker has its store."""
        async with asyncio.timeout(2 * DEADLINE_S):
            while not self._are_stores_used():  # noqa: ASYNC110  # connections of several owners announce nothing
                await asyncio.sleep(0.01)

    def _are_stores_used(self) -> bool:
        ups = [member.worker.load().gauges["store_up"] for member in self.members]
        return all(ups) and all(has_store(member.engine) for member in self.members)

    async def nothing_is_left(self) -> None:
        """Return when no worker works, no store has a pin or a slot that is being written, and nothing is reserved."""
        give_up_at = time.monotonic() + DEADLINE_S
        while left := await self._left():
            assert time.monotonic() < give_up_at, left
            await asyncio.sleep(0.02)

    async def _left(self) -> dict[str, Any]:
        left: dict[str, Any] = {}
        for member in self.members:
            stored = await self.statistics(member.store)
            held = stored.pins, stored.writing_slots, stored.handoffs
            load = member.worker.load()
            working = load.running, load.waiting, load.held
            left[member.name] = (held, held_blocks(member.engine), working)
        left = {name: what for name, what in left.items() if what != ((0, 0, 0), 0, (0, 0, 0))}
        if self.ledger.statistics().open_leases:
            left["ledger"] = self.ledger.statistics()
        return left


class Load:
    """Clients that ask one request after the other."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._answers = asyncio.Semaphore(0)
        self.over = False

    async def client(self) -> None:
        """Ask until it is over."""
        while not self.over:
            await self._pools.ask(prompt_of(PROMPT_TOKENS, 1000 + next(self._pools.numbers)))
            self._answers.release()
            await asyncio.sleep(PAUSE_S)

    async def answered(self, requests: int) -> None:
        """Return when so many more have been answered."""
        while not self._answers.locked():
            await self._answers.acquire()
        async with asyncio.timeout(4 * DEADLINE_S):
            for _ in range(requests):
                await self._answers.acquire()


@asynccontextmanager
async def pools(
    model: Path,
    prefill: Sequence[Reached],
    decode: Sequence[Reached],
    shape: Shape = SHAPE,
    routing: Routing | None = None,
    admission: AdmissionSettings = EVERYBODY_WAITS,
    **engine: Any,
) -> AsyncIterator[Pools]:
    """A worker over each of these stores, which may be the same. Without a `routing` work is spread evenly."""
    ledger = routing.ledger if routing is not None else Ledger()
    router = routing.router if routing is not None else LeastWork(LeastWorkSettings(), ledger)
    feed = KvIndexFeed(routing.index, routing.gone) if routing is not None else None
    roles: list[tuple[Role, Sequence[Reached]]] = [("prefill", prefill), ("decode", decode)]
    async with AsyncExitStack() as stack:
        members: list[Member] = []
        pool = WorkerPool(pool_settings(), feed)
        addresses: dict[str, str] = {}
        for role, stores in roles:
            for number, store in enumerate(stores):
                name, made = f"{role} {number}", await _engine(model, store, shape, **engine)
                worker = await stack.enter_async_context(running_worker(name, store, made, shape, role))
                addresses[name] = worker.address
                members.append(Member(name, worker, made, store))
        await stack.enter_async_context(pool)
        pool.update(addresses)
        await pool.wait_for(lambda fleet: sum(r.ready for r in fleet.replicas.values()) == len(members), DEADLINE_S)
        bounds = CoordinatorSettings(handoff_s=DEADLINE_S, admission=admission)
        coordinator = Coordinator(pool, router, ledger, time.monotonic, random.Random(0), bounds, GatewayMetrics())
        yield Pools(settings(model, **engine), members, pool, coordinator, ledger)


async def _deltas(stream: WorkerStream) -> AsyncIterator[Sequence[Delta]]:
    while True:
        deltas = await stream.next()
        yield deltas
        if any(delta.finish_reason for delta in deltas):
            return


async def _engine(model: Path, store: Reached, shape: Shape, **changes: Any) -> SimulatedEngine:
    access = StoreAccess(store.socket_name, SECRET, load_s=1.0, retry_s=0.05)
    bounds = {"device_blocks": shape.device_blocks, "max_model_len": shape.max_model_len}
    return await SimulatedEngine.create(settings(model, store=access, **bounds, **changes))
