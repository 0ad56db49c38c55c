"""A whole coordinator at the default settings whose clients come whatever happens, in virtual time.

Prefill replicas compute one prompt after the other, as fast as the router's profile says. Decode replicas have so many
places in their batches, and decode in all of them as fast.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.routing_choice import choose_routing
from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.errors import Overloaded
from configs.schema import BatonConfig, GatewayConfig, ModelConfig, RatesConfig, RouterConfig
from routing.fleet import Role
from tests.simulation.fake_workers import Behaviour, FakeWorkers
from tests.simulation.recorder import Recorder
from tests.simulation.world import request

DEFAULTS = GatewayConfig()
MAX_WAIT_S = DEFAULTS.admission.max_wait_s or 0.0
PREFILL_TOKENS_PER_S = 5_000.0


@dataclass(frozen=True)
class Site:
    """Replicas, and what is asked of them: prompts and outputs are as long as drawn from these ranges."""

    prefills: int
    decodes: int
    prompts: range
    outputs: range
    places: int = 256
    step_s: float = 0.001
    steps_at_once: int = 1

    @property
    def slowest_prompt_s(self) -> float:
        return self.prompts[-1] / PREFILL_TOKENS_PER_S

    @property
    def prefilled_per_s(self) -> float:
        """Prompt tokens that all prefill replicas compute."""
        return self.prefills * PREFILL_TOKENS_PER_S

    @property
    def decoded_per_s(self) -> float:
        """Tokens that all decode replicas make."""
        return self.decodes * self.places / self.step_s

    def rates(self) -> RatesConfig:
        """What the router knows."""
        return RatesConfig(
            prefill_step_s=0.0,
            prefill_token_s=1 / PREFILL_TOKENS_PER_S,
            prefill_attention_s=0.0,
            chunk_tokens=100_000,
            decode_step_s=self.step_s,
            decode_request_s=0.0,
            decode_context_token_s=0.0,
            max_running=self.places,
            kv_bytes_per_token=1,
        )


@dataclass
class Try:
    """One request that was sent: when, and how it went."""

    tokens: int
    output: int
    tenant: str | None
    at_s: float
    goes_at: float | None = None
    ttft_s: float | None = None
    refused_at: float = 0.0
    retry_after_s: float | None = None
    made_at_s: list[tuple[float, int]] = field(default_factory=list)


@dataclass
class Queues:
    """Replicas that compute one prompt after the other; `local_at` says when decode replicas were given one."""

    site: Site
    free_at: dict[str, float] = field(default_factory=dict)
    local_at: list[float] = field(default_factory=list)

    def behave(self, replica_id: str, leg: Leg) -> Behaviour:
        """A prompt is computed when its turn has come."""
        at_once = self.site.steps_at_once
        if leg.handoff is not None and leg.role == "decode":
            return Behaviour(gap_s=at_once * self.site.step_s, step_tokens=at_once)
        now = asyncio.get_running_loop().time()
        if leg.role == "decode":
            self.local_at.append(now)
        work_s = len(leg.request.token_ids) / PREFILL_TOKENS_PER_S
        ends = self.free_at[replica_id] = max(self.free_at.get(replica_id, 0.0), now) + work_s
        return Behaviour(start_s=ends - now, gap_s=at_once * self.site.step_s, step_tokens=at_once)


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

    def __init__(self, site: Site, seed: int, max_wait_s: float = MAX_WAIT_S, line: LineSettings | None = None) -> None:
        self.site = site
        self.rng = random.Random(seed)
        self.clock = asyncio.get_running_loop().time
        self.tries: list[Try] = []
        self.queues = Queues(site)
        self.workers = FakeWorkers(self.queues.behave, site.places)
        for i in range(site.prefills):
            self.workers.add(f"p{i}", Role.PREFILL)
        for i in range(site.decodes):
            self.workers.add(f"d{i}", Role.DECODE)
        routing = choose_routing(BatonConfig(model=ModelConfig(path="m"), router=RouterConfig(rates=site.rates())))
        for name in self.workers.fleet().replicas:
            routing.index.place(name, "n1")
        admission = AdmissionSettings(DEFAULTS.max_requests_in_flight, max_wait_s, line or LineSettings())
        self.coordinator = Coordinator(
            self.workers,
            routing.router,
            routing.ledger,
            self.clock,
            self.rng,
            CoordinatorSettings(admission=admission),
            Turns(self.clock, self.tries),
            [routing.learner(self.workers.fleet)],
        )

    async def send(
        self,
        group: asyncio.TaskGroup,
        per_s: float,
        seconds: float,
        tenant: str | None = None,
        first_token_s: float | None = None,
    ) -> None:
        """Requests at random moments."""
        ends = self.clock() + seconds
        while self.clock() < ends:
            group.create_task(self.one(tenant, first_token_s))
            await asyncio.sleep(self.rng.expovariate(per_s))

    async def one(self, tenant: str | None = None, first_token_s: float | None = None) -> None:
        """One request, and what became of it."""
        tokens, output = self.rng.choice(self.site.prompts), self.rng.choice(self.site.outputs)
        prompt = self.rng.choices(range(50_000), k=tokens)
        asked = replace(
            request(str(len(self.tries)), max_tokens=output),
            token_ids=prompt,
            cache_salt=tenant,
            first_token_s=first_token_s,
        )
        sent = Try(tokens, output, tenant, self.clock())
        self.tries.append(sent)
        try:
            async for deltas in self.coordinator.generate(asked):
                if sent.ttft_s is None:
                    sent.ttft_s = self.clock() - sent.at_s
                sent.made_at_s.append((self.clock(), sum(len(delta.token_ids) for delta in deltas)))
        except Overloaded as error:
            sent.refused_at, sent.retry_after_s = self.clock(), error.retry_after_s


def answered(tries: list[Try], start_s: float, end_s: float) -> list[Try]:
    """Those whose first token came in this time."""
    return [t for t in tries if t.ttft_s is not None and start_s <= t.at_s + t.ttft_s < end_s]


def made(tries: list[Try], start_s: float, end_s: float) -> int:
    """Tokens made in this time."""
    return sum(count for t in tries for at_s, count in t.made_at_s if start_s <= at_s < end_s)


def ttfts(tries: list[Try], since_s: float) -> list[float]:
    return [t.ttft_s for t in tries if t.ttft_s is not None and t.at_s >= since_s]
