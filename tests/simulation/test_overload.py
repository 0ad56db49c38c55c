"""Three times as much as the cluster can take, for a minute, through a whole coordinator in virtual time.

Prefill replicas compute one prompt after the other, as fast as the router's profile says; decode has room for all.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.routing_choice import choose_routing
from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.errors import Overloaded
from cluster.gateway.failures import retry_after
from cluster.planning.quantiles import quantile
from configs.schema import BatonConfig, ModelConfig, RatesConfig, RouterConfig
from kvtransfer.tenant import tenant_of
from routing.fleet import Role
from tests.simulation.fake_workers import Behaviour, FakeWorkers
from tests.simulation.recorder import Recorder
from tests.simulation.virtual_clock import run_virtual
from tests.simulation.world import request

PREFILLS = 4
PREFILL_TOKENS_PER_S = 5_000.0
MAX_WAIT_S = 2.0
LONGEST_PROMPT = 1_500
TTFT_TARGET_S = MAX_WAIT_S + LONGEST_PROMPT / PREFILL_TOKENS_PER_S + 0.1
RATES = RatesConfig(
    prefill_step_s=0.0,
    prefill_token_s=1 / PREFILL_TOKENS_PER_S,
    prefill_attention_s=0.0,
    chunk_tokens=100_000,
    decode_step_s=0.001,
    decode_request_s=0.0,
    decode_context_token_s=0.0,
    kv_bytes_per_token=1,
)


@dataclass
class Try:
    """One request that was sent: when, and how it went."""

    tokens: int
    tenant: str | None
    at_s: float
    goes_at: float | None = None
    ttft_s: float | None = None
    retry_after_s: float | None = None


@dataclass
class Queues:
    """Replicas that compute one prompt after the other; `local_at` says when decode replicas were given one."""

    free_at: dict[str, float] = field(default_factory=dict)
    local_at: list[float] = field(default_factory=list)

    def behave(self, replica_id: str, leg: Leg) -> Behaviour:
        """A prompt is computed when its turn has come."""
        if leg.handoff is not None and leg.role == "decode":
            return Behaviour(gap_s=0.01)
        now = asyncio.get_running_loop().time()
        if leg.role == "decode":
            self.local_at.append(now)
        work_s = len(leg.request.token_ids) / PREFILL_TOKENS_PER_S
        ends = self.free_at[replica_id] = max(self.free_at.get(replica_id, 0.0), now) + work_s
        return Behaviour(start_s=ends - now, gap_s=0.01)


class Turns(Recorder):
    """Remembers when each request went."""

    def __init__(self, clock: Callable[[], float], tries: list[Try]) -> None:
        super().__init__()
        self._clock = clock
        self._tries = tries

    def started(self, request: GenerationRequest) -> None:
        super().started(request)
        self._tries[int(request.request_id)].goes_at = self._clock()


class Overload:
    """A coordinator with a router that knows its replicas, and clients that come whatever happens."""

    def __init__(self, seed: int, max_wait_s: float | None = MAX_WAIT_S, line: LineSettings | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = asyncio.get_running_loop().time
        self.tries: list[Try] = []
        self.queues = Queues()
        self.workers = FakeWorkers(self.queues.behave)
        for i in range(PREFILLS):
            self.workers.add(f"p{i}", Role.PREFILL)
            self.workers.add(f"d{i}", Role.DECODE)
        routing = choose_routing(BatonConfig(model=ModelConfig(path="m"), router=RouterConfig(rates=RATES)))
        for name in self.workers.fleet().replicas:
            routing.index.place(name, "n1")
        admission = AdmissionSettings(1024, max_wait_s, line or LineSettings())
        settings = CoordinatorSettings(admission=admission)
        self.coordinator = Coordinator(
            self.workers, routing.router, routing.ledger, self.clock, self.rng, settings, Turns(self.clock, self.tries)
        )

    async def send(self, group: asyncio.TaskGroup, times: float, seconds: float, tenant: str | None = None) -> None:
        """Requests at random moments, `times` as much as the replicas can compute."""
        ends = self.clock() + seconds
        per_s = times * PREFILLS * PREFILL_TOKENS_PER_S / 1_000
        while self.clock() < ends:
            group.create_task(self.one(tenant))
            await asyncio.sleep(self.rng.expovariate(per_s))

    async def one(self, tenant: str | None = None) -> None:
        """One request, and what became of it."""
        tokens = self.rng.randrange(500, LONGEST_PROMPT)
        prompt = self.rng.choices(range(50_000), k=tokens)
        asked = replace(request(str(len(self.tries)), max_tokens=4), token_ids=prompt, cache_salt=tenant)
        sent = Try(tokens, tenant, self.clock())
        self.tries.append(sent)
        try:
            async for _ in self.coordinator.generate(asked):
                if sent.ttft_s is None:
                    sent.ttft_s = self.clock() - sent.at_s
        except Overloaded as error:
            sent.retry_after_s = error.retry_after_s


def answered(tries: list[Try], start_s: float, end_s: float) -> list[Try]:
    """Those whose first token came in this time."""
    return [t for t in tries if t.ttft_s is not None and start_s <= t.at_s + t.ttft_s < end_s]


def ttfts(tries: list[Try], since_s: float) -> list[float]:
    return [t.ttft_s for t in tries if t.ttft_s is not None and t.at_s >= since_s]


def told_s(retry_after_s: float) -> float:
    """As the header has it."""
    [(_, value)] = retry_after(429, retry_after_s)
    return float(value)


def test_a_minute_at_three_times_the_capacity_harms_nobody_who_is_admitted() -> None:
    async def main() -> Overload:
        world = Overload(seed=1)
        async with asyncio.TaskGroup() as group:
            await world.send(group, times=3.0, seconds=60.0)
            await world.send(group, times=0.5, seconds=20.0)
        world.coordinator.check()
        assert world.coordinator.statistics().admission.in_flight == 0
        return world

    world = run_virtual(main())
    tries, local = world.tries, [at for at in world.queues.local_at if at <= 60.0]
    assert not local, "decode replicas took part: the capacity is not what it is taken to be"
    refused = [t for t in tries if t.retry_after_s is not None]
    assert len(refused) > 1_500
    assert quantile(ttfts(tries, 0.0), 0.99) <= TTFT_TARGET_S
    goodput = sum(t.tokens for t in answered(tries, 0.0, 60.0)) / 60.0
    assert goodput >= 0.95 * PREFILLS * PREFILL_TOKENS_PER_S
    assert not [t for t in refused if t.at_s > 65.0]
    assert not [t for t in tries if t.at_s > 65.0 and t.goes_at != t.at_s]
    assert quantile(ttfts(tries, 65.0), 0.99) <= 0.5 + LONGEST_PROMPT / PREFILL_TOKENS_PER_S


def test_retry_after_is_right_within_half() -> None:
    """It is when the last of those that were in line before would have gone, and with it one that had come then."""

    async def main() -> Overload:
        world = Overload(seed=2, max_wait_s=6.0)
        async with asyncio.TaskGroup() as group:
            await world.send(group, times=3.0, seconds=60.0)
        return world

    tries = run_virtual(main()).tries
    last_goes_at, ratios = 0.0, []
    for each in tries:
        if each.goes_at is not None:
            last_goes_at = max(last_goes_at, each.goes_at)
        elif each.retry_after_s is not None:
            ratios.append(told_s(each.retry_after_s) / (last_goes_at - each.at_s))
    assert len(ratios) > 1_500
    assert sum(0.5 <= ratio <= 1.5 for ratio in ratios) >= 0.99 * len(ratios), (min(ratios), max(ratios))


def test_a_greedy_tenant_gets_no_more_than_its_share_while_another_waits() -> None:
    async def main() -> Overload:
        world = Overload(seed=3, line=LineSettings(weights={tenant_of("big"): 2.0}))
        async with asyncio.TaskGroup() as group:
            for tenant, times in (("greedy", 4.0), ("modest", 0.7), ("big", 1.5)):
                group.create_task(world.send(group, times, 40.0, tenant))
        return world

    tries = run_virtual(main()).tries
    tokens: Counter[str] = Counter()
    for each in answered(tries, 10.0, 40.0):
        tokens[each.tenant] += each.tokens
    total = sum(tokens.values())
    assert tokens["greedy"] <= 1.1 * total / 4
    assert tokens["big"] >= 0.9 * total / 2
