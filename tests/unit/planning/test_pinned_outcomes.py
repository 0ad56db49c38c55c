"""What a simulation brings is pinned, request by request in sum: making it faster must not change it.

The router is the plainest one and the engine the test's own, so that only the simulator can change the figures. Where
another behaviour of it is meant, they are written down anew.
"""

import random
from dataclasses import dataclass, replace

import pytest

from cluster.planning import minds
from cluster.planning.gateway import Gateway
from cluster.planning.settings import EngineSettings, split
from cluster.planning.simulation import Simulation
from cluster.planning.step_time import NO_PREFILL, Prefill
from cluster.planning.synthetic import synthesize
from cluster.planning.trace import Trace
from configs.workload import ArrivalsConfig, LengthsConfig, PhaseConfig, PrefixLevelConfig, WorkloadConfig


@dataclass(frozen=True, slots=True)
class Affine:
    """Each part has its price; a longer context makes later steps longer."""

    def step_s(self, prefill: Prefill, decoding: int, context_tokens: int) -> float:
        return 6e-3 + 18e-6 * prefill.tokens + 1e-9 * prefill.pairs + 1e-4 * decoding + 5e-8 * context_tokens

    def run_s(self, steps: int, decoding: int, context_tokens: int) -> float:
        return sum(self.step_s(NO_PREFILL, decoding, context_tokens + step * decoding) for step in range(steps))


ENGINE = EngineSettings(
    step_time=Affine(), device_blocks=800, max_batched_tokens=2_048, max_running=64, kv_bytes_per_token=131_072
)


@dataclass(frozen=True, slots=True)
class Sums:
    """Over all requests; how often workers had no room for what they decoded, and the steps they took."""

    first_s: float
    last_s: float
    computed_tokens: int
    preempted: int
    steps: int


def _trace() -> Trace:
    """Prompts that share a tree of prefixes, more than the devices hold, in bursts."""
    phase = PhaseConfig(
        duration_s=20,
        arrivals=ArrivalsConfig(rate_per_s=12, variation=2.0),
        prompt=LengthsConfig(mean_tokens=3_000, variation=0.8, least_tokens=64, most_tokens=16_000),
        output=LengthsConfig(mean_tokens=150, variation=0.8, least_tokens=2, most_tokens=1_000),
        prefixes=(
            PrefixLevelConfig(tokens=1_024, choices=12, skew=0.7),
            PrefixLevelConfig(tokens=1_024, choices=6, skew=0.7),
        ),
    )
    return synthesize(WorkloadConfig(phases=[phase], seed=11))


@pytest.mark.parametrize(
    ("prefill", "decode", "host_blocks", "expected"),
    [
        (0, 4, 0, Sums(1962.7783557587848, 2253.330681022786, 513_281, 0, 10_355)),
        (2, 2, 0, Sums(1977.2581691254734, 2260.0269434459724, 502_810, 1, 6_414)),
        (2, 2, 3_000, Sums(1975.2598222094355, 2258.617476813435, 440_619, 1, 6_369)),
    ],
)
def test_a_slice_comes_out_as_ever(prefill: int, decode: int, host_blocks: int, expected: Sums) -> None:
    cluster = split(prefill, decode, replace(ENGINE, host_blocks=host_blocks))
    gateway = Gateway(0, minds.least_work(), random.Random(1))
    simulation = Simulation(cluster, [gateway], _trace())
    records = simulation.run().records
    simulation.check()
    totals = [site.worker.totals for site in simulation.sites.values()]
    sums = Sums(
        first_s=sum(record.first_s for record in records),
        last_s=sum(record.last_s for record in records),
        computed_tokens=sum(record.computed_tokens for record in records),
        preempted=sum(total.preempted for total in totals),
        steps=sum(total.steps for total in totals),
    )
    assert sums == replace(
        expected, first_s=pytest.approx(expected.first_s, rel=1e-9), last_s=pytest.approx(expected.last_s, rel=1e-9)
    )
