"""One answer tried: a topology simulated on windows of the trace at a load. Stops when it cannot be good enough.

Each window begins with empty caches and an idle cluster, so a short one flatters; what is found on windows is confirmed
on longer ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.planning import minds
from cluster.planning.gateway import Gateway
from cluster.planning.outcome import Outcome, Record, Slo
from cluster.planning.planner.question import Question
from cluster.planning.planner.topology import Topology
from cluster.planning.quantiles import quantile
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace
from routing.router import Rng

_LOOKS = 40
"""How often a window is looked at to see whether it can still be good enough."""


@dataclass(frozen=True, slots=True)
class Window:
    """`count` requests of the trace from number `start` on."""

    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Ask:
    """What to try. Requests come `load` times as fast; with more than `most_bad` bad ones it is given up."""

    topology: Topology
    windows: tuple[Window, ...]
    load: float = 1.0
    most_bad: float = math.inf

    @property
    def requests(self) -> int:
        """In all windows."""
        return sum(window.count for window in self.windows)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it. Times in seconds, over the requests that finished; `good_per_s` while requests came.

    `strain` is the worse of both targets' 99th percentiles in parts of the target: below 1 there is room. A `given_up`
    trial was cut short: its `good` is at most what the rest could have brought.
    """

    ask: Ask
    good: int
    good_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    itl_p50_s: float
    itl_p99_s: float
    reuse: float
    strain: float
    given_up: bool = False

    @property
    def topology(self) -> Topology:
        """What was tried."""
        return self.ask.topology

    @property
    def share(self) -> float:
        """Good requests among all."""
        return self.good / self.ask.requests


class Try(Protocol):
    """Tries several at once, in any order, perhaps in several processes; answers in the order of asking."""

    def __call__(self, asks: Sequence[Ask]) -> list[Trial]: ...


def run_trial(question: Question, ask: Ask, rng: Rng) -> Trial:
    """Simulate it."""
    outcomes: list[Outcome] = []
    span_s, most_bad = 0.0, ask.most_bad
    for window in ask.windows:
        trace = question.trace.window(window.start, window.count).faster(ask.load)
        span_s += trace.requests[-1].arrival_s
        outcomes.append(_simulate(question, ask.topology, trace, most_bad, rng))
        most_bad -= sum(not record.keeps(question.slo) for record in outcomes[-1].records)
        if most_bad < 0:
            break
    return _trial(question, ask, outcomes, span_s)


def _simulate(question: Question, topology: Topology, trace: Trace, most_bad: float, rng: Rng) -> Outcome:
    mind = minds.kv_aware(question.engine.rates, question.itl_target_s)
    simulation = Simulation(question.cluster(topology), [Gateway(0, mind, rng)], trace)
    if most_bad < math.inf:
        last_s = trace.requests[-1].arrival_s + question.slo.ttft_s
        for look in range(1, _LOOKS + 1):
            simulation.events.run(last_s * look / _LOOKS)
            if _bad(simulation.records, question.slo, simulation.events.now) > most_bad:
                return simulation.outcome()
    return simulation.run()


def _bad(records: Sequence[Record], slo: Slo, now: float) -> int:
    """Requests that are certain to be bad at `now`: their first token is late, or they ended and were not good."""
    return sum(
        not record.keeps(slo)
        if record.finished
        else (record.ttft_s if record.first_s >= 0 else now - record.arrival_s) > slo.ttft_s
        for record in records
    )


def _trial(question: Question, ask: Ask, outcomes: Sequence[Outcome], span_s: float) -> Trial:
    slo = question.slo
    records = [record for outcome in outcomes for record in outcome.records]
    finished = [record for record in records if record.finished]
    given_up = len(finished) < ask.requests
    ttfts, itls = [r.ttft_s for r in finished], [r.itl_s for r in finished if r.output_tokens > 1]
    good = sum(record.keeps(slo) for record in finished)
    prompts = sum(record.prompt_tokens for record in finished)
    ttft_p99_s, itl_p99_s = quantile(ttfts, 0.99), quantile(itls, 0.99)
    return Trial(
        ask=ask,
        good=good,
        good_per_s=good / span_s if span_s else 0.0,
        ttft_p50_s=quantile(ttfts, 0.5),
        ttft_p99_s=ttft_p99_s,
        itl_p50_s=quantile(itls, 0.5),
        itl_p99_s=itl_p99_s,
        reuse=1 - sum(record.computed_tokens for record in finished) / (prompts or 1),
        strain=math.inf if given_up else max(ttft_p99_s / slo.ttft_s, itl_p99_s / slo.itl_s),
        given_up=given_up,
    )
