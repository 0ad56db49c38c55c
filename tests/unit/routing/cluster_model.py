"""A cluster in virtual time for tests of the router: engines that batch, gateways that see each other by reports only.

An engine makes steps: every running request gets a token, and prompts are computed in order of arrival within a budget.
A step takes what the simulated profile says. What a prompt finds cached is looked up when its first chunk is planned;
blocks are cached when they are computed. Nothing is ever evicted.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from routing.fleet import Fleet, Replica, ReplicaLoad
from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.ledger import Lease, Ledger
from routing.profile import Profile
from routing.router import Decision, Router, RouteRequest

PROFILE = Profile(
    prefill_step_s=0.010,
    prefill_token_s=1 / 8000,
    prefill_attention_s=0.0,
    chunk_tokens=2048,
    decode_step_s=0.010,
    decode_request_s=0.0002,
    decode_context_token_s=0.0,
    max_running=64,
    kv_bytes_per_token=256,
    host_bytes_per_s=1e9,
    host_latency_s=0.003,
    remote_bytes_per_s=5e8,
    remote_latency_s=0.005,
)


@dataclass
class Task:
    """A leg on an engine. `on_first` and `on_end` are called with the first and the last token."""

    keys: Sequence[int]
    prompt: int
    output: int
    gateway: int
    on_first: Callable[[], None]
    on_end: Callable[[], None]
    lacking: int | None = None  # prompt tokens still to be computed, None before that is known


@dataclass
class Engine:
    """One worker. `computed` counts prompt tokens."""

    replica: Replica
    world: "World"
    waiting: deque[Task] = field(default_factory=deque)
    running: list[Task] = field(default_factory=list)
    cached: set[int] = field(default_factory=set)
    computed: int = 0
    served: int = 0
    stepping: bool = False

    def add(self, task: Task) -> None:
        self.served += 1
        self.waiting.append(task)
        if not self.stepping:
            self._step()

    def tasks(self) -> list[Task]:
        return [*self.running, *self.waiting]

    def _step(self) -> None:
        self.stepping = bool(self.waiting or self.running)
        if not self.stepping:
            return
        budget, chunks = PROFILE.chunk_tokens, list[tuple[Task, int]]()
        for task in self.waiting:
            if budget == 0:
                break
            if task.lacking is None:
                task.lacking = task.prompt - self._usable(task) * self.replica.block_size_tokens
            count = min(budget, task.lacking)
            chunks.append((task, count))
            budget -= count
        prompt_tokens = sum(count for _, count in chunks)
        seconds = PROFILE.step_s(len(self.running), 0) + PROFILE.prefill_token_s * prompt_tokens
        self.world.after(seconds, lambda: self._stepped(list(self.running), chunks))

    def _usable(self, task: Task) -> int:
        most = (task.prompt - 1) // self.replica.block_size_tokens
        return next((i for i, key in enumerate(task.keys[:most]) if key not in self.cached), most)

    def _stepped(self, decoded: list[Task], chunks: list[tuple[Task, int]]) -> None:
        for task in decoded:
            self._token(task)
        for task, count in chunks:
            assert task.lacking is not None
            self.computed += count
            task.lacking -= count
            if task.lacking == 0:
                self.waiting.remove(task)
                self.running.append(task)
                self.store(task.keys)
                task.on_first()
                self._token(task)
        self._step()

    def _token(self, task: Task) -> None:
        task.output -= 1
        if task.output == 0:
            self.running.remove(task)
            task.on_end()

    def store(self, keys: Sequence[int]) -> None:
        """Blocks lie on the device now."""
        self.cached.update(keys)
        self.world.stored(self, keys)


@dataclass
class Gateway:
    """One router with its own ledger and index; sees the fleet as it was reported."""

    router: Router
    ledger: Ledger
    index: BlockIndex
    fleet: Fleet = field(default_factory=lambda: Fleet({}))


@dataclass(frozen=True, slots=True)
class Served:
    """What became of a request."""

    decision: Decision
    ttft_s: float
    latency_s: float


class World:
    """Virtual time, engines and gateways. `delays` bounds how late reports and cache events are."""

    def __init__(self, replicas: Sequence[Replica], delays: tuple[float, float] = (0.05, 0.1), seed: int = 0) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.engines = {replica.replica_id: Engine(replica, self) for replica in replicas}
        self.gateways: list[Gateway] = []
        self.served: list[Served] = []
        self.open = 0
        self._delays = delays
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def add_gateway(self, make: Callable[[Ledger, BlockIndex], Router]) -> None:
        """A gateway with the router that `make` returns."""
        index = BlockIndex(2**24)
        ledger = Ledger(index)
        for engine in self.engines.values():
            index.place(engine.replica.replica_id, engine.replica.store)
            index.snapshot(engine.replica.replica_id, Tier.DEVICE, ())
        fleet = Fleet({replica_id: engine.replica for replica_id, engine in self.engines.items()})
        self.gateways.append(Gateway(make(ledger, index), ledger, index, fleet))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._count), call))

    def submit(self, request: RouteRequest, output: int, gateway: int = 0) -> None:
        """Route and send a request that will produce `output` tokens."""
        mind = self.gateways[gateway]
        decision = mind.router.route(request, mind.fleet, self.now, self.rng)
        lease = mind.ledger.reserve(decision, request, self.now)
        began, first = self.now, list[float]()
        keys = request.keys.at(self.engines[decision.decode].replica.block_size_tokens)

        def started() -> None:
            first.append(self.now - began)
            mind.ledger.prefill_done(lease, self.now)

        def ended() -> None:
            mind.ledger.release(lease, self.now)
            self.open -= 1
            self.served.append(Served(decision, first[0], self.now - began))

        self.open += 1
        decoding = Task(keys, request.prompt_tokens, output, gateway, started, ended)
        if decision.prefill is None:
            self.engines[decision.decode].add(decoding)
        else:
            self._prefill(mind, decision, lease, decoding)

    def _prefill(self, mind: Gateway, decision: Decision, lease: Lease, decoding: Task) -> None:
        assert decision.prefill is not None
        source, sink = self.engines[decision.prefill], self.engines[decision.decode]

        def computed() -> None:
            mind.ledger.prefill_done(lease, self.now)
            far = source.replica.node_id != sink.replica.node_id
            tokens = sum(key not in sink.cached for key in decoding.keys) * sink.replica.block_size_tokens
            self.after(PROFILE.load_s(tokens) + (PROFILE.remote_latency_s if far and tokens else 0.0), loaded)

        def loaded() -> None:
            sink.store(decoding.keys)
            sink.add(decoding)

        source.add(replace(decoding, output=1, on_first=computed, on_end=lambda: None))

    def run(self) -> None:
        """Until nothing happens any more."""
        self.after(self._delay(), self._report)
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()
        for gateway in self.gateways:
            gateway.ledger.check()
            assert gateway.ledger.statistics().open_leases == 0

    def stored(self, engine: Engine, keys: Sequence[int]) -> None:
        """Tell every gateway, later."""
        replica_id = engine.replica.replica_id
        for gateway in self.gateways:
            self.after(self._delay(), lambda g=gateway: g.index.apply(replica_id, Tier.DEVICE, keys, ()))

    def _delay(self) -> float:
        return self.rng.uniform(*self._delays)

    def _report(self) -> None:
        """Every engine's load to every gateway; again and again while anything is open."""
        for number, gateway in enumerate(self.gateways):
            seen = {replica_id: self._seen(engine, number) for replica_id, engine in self.engines.items()}
            self.after(self._delay(), lambda g=gateway, s=seen: setattr(g, "fleet", Fleet(s)))
        if self.open:
            self.after(0.05, self._report)

    def _seen(self, engine: Engine, gateway: int) -> Replica:
        tasks = engine.tasks()
        others = [task for task in tasks if task.gateway != gateway]
        lacking = sum(task.prompt if task.lacking is None else task.lacking for task in others)
        load = ReplicaLoad(
            running=len(engine.running),
            waiting=len(engine.waiting),
            queued_prefill_tokens=sum(task.lacking or 0 for task in tasks),
            others_requests=len(others),
            others_prefill_tokens=lacking,
        )
        return replace(engine.replica, load=load)
