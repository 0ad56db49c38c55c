"""Two real engines, a core each, on one node's store, behind the production coordinator, router and data plane; no Ray.

All in this process but the engines and the store. The same two engines serve a trace in turn as prefill and decode, as
two that do both behind our router, and as two that do both in plain turns, without coordinator and data plane.
"""

import asyncio
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
from pydantic import SecretStr

from cluster.cli.profile_measure import table
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.placement import Placement
from cluster.coordinator.routing_choice import choose_routing
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Role, WorkerInfo
from cluster.dataplane.pool import PoolSettings, WorkerPool
from cluster.engines.engine import EngineRequest
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.gateway.metrics import GatewayMetrics
from cluster.models.fetch import resolve
from cluster.models.identity import model_digest
from cluster.planning.trace import Trace, TraceRequest
from cluster.profiling.bench import TOKEN_IDS, Bench, Stores
from cluster.profiling.schedule import Limits, context_tokens, schedule
from cluster.profiling.session import Pace, fitted, measure
from cluster.profiling.store_process import StoreProcess
from cluster.workers.engine_choice import StartedEngine, Surroundings, choose
from cluster.workers.store_link import StoreLink
from cluster.workers.worker import Worker, WorkerSettings
from configs.load import load
from configs.profile_file import ProfileConfig
from configs.schema import BatonConfig, RatesConfig
from kvtransfer.aclient import AsyncStoreClient

CONFIG = Path(__file__).parents[2] / "configs" / "laptop.yaml"
"""Whose engines are usual. With `configs/simulated.yaml` the instruments can be tried without weights."""

STORE_BYTES = 1 << 30
DEADLINE_S = 240.0
WARM_TOKENS = 600


@dataclass(frozen=True, slots=True)
class Served:
    """One request: when it came, was answered, and by whom its prompt was computed."""

    ttft_s: float
    gaps_s: Sequence[float]
    prefill: str | None = None

    @property
    def itl_s(self) -> float:
        """Its mean time between tokens."""
        return sum(self.gaps_s) / len(self.gaps_s) if self.gaps_s else 0.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one kind, at random: `per_s` of them, lengths around their means by half."""

    prompt_tokens: int
    output_tokens: int
    per_s: float


CHAT = Traffic(prompt_tokens=120, output_tokens=48, per_s=0.35)
LONG = Traffic(prompt_tokens=1000, output_tokens=16, per_s=0.08)


def mixed(kinds: Sequence[Traffic], duration_s: float, block_tokens: int, seed: int) -> Trace:
    """Poisson arrivals of each kind. No prompt has anything in common with another."""
    rng = random.Random(seed)
    drawn: list[tuple[float, int, int]] = []
    for kind in kinds:
        arrival_s = rng.expovariate(kind.per_s)
        while arrival_s < duration_s:
            lengths = (int(mean * rng.uniform(0.5, 1.5)) for mean in (kind.prompt_tokens, kind.output_tokens))
            drawn.append((arrival_s, *lengths))
            arrival_s += rng.expovariate(kind.per_s)
    requests, first_key = [], 1
    for arrival_s, prompt, output in sorted(drawn):
        blocks = prompt // block_tokens
        requests.append(TraceRequest(arrival_s, prompt, output, range(first_key, first_key + blocks)))
        first_key += blocks
    return Trace(requests, block_tokens)


class RealPair:
    """Use `real_pair`."""

    def __init__(
        self,
        config: BatonConfig,
        engines: Sequence[StartedEngine],
        workers: Sequence[Worker],
        stores: Stores,
        kv_bytes_per_token: int,
    ) -> None:
        self.config = config
        self._kv_bytes_per_token = kv_bytes_per_token
        self._engines = engines
        self._workers = workers
        self._stores = stores
        self._prompts = random.Random(0)
        self._asked = 0

    @property
    def limits(self) -> Limits:
        engine = self._engines[1]
        kv_tokens = engine.kv_blocks * engine.block_size_tokens
        return Limits(
            engine.max_batched_tokens, engine.max_running, engine.max_model_len, kv_tokens, engine.block_size_tokens
        )

    async def profile(self, say: Callable[[str], None], minutes: float) -> ProfileConfig:
        """The decode engine's, while the other one idles."""
        pace = Pace(2, True, 60 * minutes)
        longest = context_tokens(schedule(self.limits, pace.quick))
        bench = Bench(self._engines[1], time.monotonic, random.Random(), longest, self._stores)
        measured = await measure(bench, self.limits, pace, lambda progress: say(progress.text))
        fit = fitted(measured, self.limits, self._kv_bytes_per_token)
        print(table(fit, measured), flush=True)
        told = {"about": "this run", **fit.rates, "kv_tokens": self.limits.kv_tokens, "start_s": 0.0}
        return ProfileConfig.model_validate({**told, "measured": measured})

    async def warm(self) -> None:
        """Each engine has computed a prompt and decoded a little: the first ones are slow."""
        for engine in self._engines:
            await self._of_engine(engine, self._prompt(WARM_TOKENS), 8)

    async def in_turns(self, trace: Trace) -> list[Served]:
        """Both do everything, in plain turns."""
        order = iter(range(len(trace.requests)))

        async def ask(prompt: list[int], tokens: int) -> Served:
            return await self._of_engine(self._engines[next(order) % 2], prompt, tokens)

        return await self._replay(trace, ask)

    async def routed(self, trace: Trace, roles: tuple[Role, Role], rates: RatesConfig) -> list[Served]:
        """Behind our router, which starts from these rates and learns."""
        router = self.config.router.model_copy(update={"profile": None, "rates": rates})
        routing = choose_routing(self.config.model_copy(update={"router": router}))
        for worker, role in zip(self._workers, roles, strict=True):
            if worker.role.role != role:
                worker.role.lend(role, False, "for a benchmark")
        digest, secret = "model", self.config.security.secret
        async with WorkerPool(PoolSettings("bench", secret, digest), KvIndexFeed(routing.index, routing.gone)) as pool:
            pool.update({worker.info.replica_id: worker.address for worker in self._workers})
            await pool.wait_for(
                lambda fleet: sorted(r.role.value for r in fleet.replicas.values() if r.ready) == sorted(roles), 10.0
            )
            settings = CoordinatorSettings(admission=AdmissionSettings(max_wait_s=None))
            rng, learner = random.Random(0), routing.learner(pool.fleet)
            coordinator = Coordinator(
                pool, routing.router, routing.ledger, time.monotonic, rng, settings, GatewayMetrics(), [learner]
            )

            async def ask(prompt: list[int], tokens: int) -> Served:
                placement = Placement()
                request = GenerationRequest(self._name(), prompt, _sampling(tokens), tokens, placement=placement)
                began, arrivals = time.monotonic(), list[float]()
                async for deltas in coordinator.generate(request):
                    for delta in deltas:
                        arrivals += _shared(arrivals, time.monotonic() - began, len(delta.token_ids))
                prefill = None if placement.decision is None else placement.decision.prefill
                return _served(arrivals, prefill)

            return await self._replay(trace, ask)

    async def _of_engine(self, engine: StartedEngine, prompt: list[int], tokens: int) -> Served:
        began, arrivals = time.monotonic(), list[float]()
        async for delta in engine.generate(EngineRequest(self._name(), prompt, _sampling(tokens))):
            arrivals += _shared(arrivals, time.monotonic() - began, len(delta.token_ids))
        return _served(arrivals)

    async def _replay(self, trace: Trace, ask: Callable[[list[int], int], Awaitable[Served]]) -> list[Served]:
        """Every request at its time, whatever became of those before."""
        began = time.monotonic()

        async def one(request: TraceRequest) -> Served:
            prompt = self._prompt(request.prompt_tokens)
            await asyncio.sleep(began + request.arrival_s - time.monotonic())
            return await ask(prompt, request.output_tokens)

        async with asyncio.timeout(trace.requests[-1].arrival_s + DEADLINE_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(request)) for request in trace.requests]
        return [task.result() for task in tasks]

    def _prompt(self, tokens: int) -> list[int]:
        return self._prompts.choices(TOKEN_IDS, k=tokens)

    def _name(self) -> str:
        self._asked += 1
        return f"bench-{self._asked}"


def _sampling(tokens: int) -> bytes:
    return msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True})


def _shared(arrivals: list[float], now: float, new: int) -> list[float]:
    """Tokens that came together share the time since the last."""
    last = arrivals[-1] if arrivals else now
    return [last + (now - last) * (n + 1) / new for n in range(new)]


def _served(arrivals: list[float], prefill: str | None = None) -> Served:
    return Served(arrivals[0], [later - earlier for earlier, later in pairwise(arrivals)], prefill)


@asynccontextmanager
async def real_pair(file: Path, say: Callable[[str], None]) -> AsyncIterator[RealPair]:
    """Everything is ended afterwards."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    config = load(file).config
    security = config.security.model_copy(update={"cluster_secret": SecretStr(secrets.token_hex())})
    config = config.model_copy(update={"security": security})
    secret, path = config.security.secret, resolve(config.model.path)
    async with AsyncExitStack() as stack:
        chosen = [choose(config, config.decode, Surroundings(f"w{n}", path, model_digest(path), [n])) for n in (0, 1)]
        kv = chosen[0].fingerprint()
        mark = kv.digest()
        here, there = [StoreProcess(secret, mark, STORE_BYTES, 60.0) for _ in range(2)]
        stack.callback(here.close)
        stack.callback(there.close)
        engines = []
        for number, each in enumerate(chosen):
            say(f"starting engine {number + 1} of 2")
            each.fingerprint()  # sets this engine's environment
            engines.append(await each.create(here.socket_name))
            stack.push_async_callback(engines[-1].close)
        clients = [await AsyncStoreClient.connect(s.socket_name, mark, "bench", secret, 10.0) for s in (here, there)]
        for client in clients:
            stack.push_async_callback(client.close)
        stack.callback((await clients[1].attach((await clients[0].statistics()).slot_bytes)).close)
        workers = [await _worker(stack, n, config, engine, here, mark) for n, engine in enumerate(engines)]
        stores = Stores(clients[0], clients[1], here.address, 60.0)
        yield RealPair(config, engines, workers, stores, kv.block_bytes // kv.block_size_tokens)


async def _worker(
    stack: AsyncExitStack, number: int, config: BatonConfig, engine: StartedEngine, store: StoreProcess, mark: str
) -> Worker:
    name, secret = f"w{number}", config.security.secret
    link = StoreLink(lambda: AsyncStoreClient.connect(store.socket_name, mark, name, secret, 5.0))
    await link.start()
    info = WorkerInfo(
        replica_id=name,
        role="prefill" if number == 0 else "decode",
        node_id="node",
        engine=config.decode.engine.kind,
        store_address=link.address,
        kv_fingerprint=mark,
        block_size_tokens=engine.block_size_tokens,
        max_model_len=engine.max_model_len,
        epoch=name,
        kv_blocks=engine.kv_blocks,
    )
    worker = Worker(WorkerSettings(info, secret, "model", "127.0.0.1"), engine, link)
    await worker.start()
    stack.push_async_callback(worker.close)
    return worker
