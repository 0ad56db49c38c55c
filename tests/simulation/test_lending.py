"""The production pool controller in a whole cluster in virtual time: traffic turns, and the replicas' roles with it."""

import random

from cluster.planning.gateway import Gateway
from cluster.planning.lending import Lending
from cluster.planning.outcome import Outcome, Slo
from cluster.planning.settings import split
from cluster.planning.simulation import Simulation
from cluster.pools.controller import PoolController
from cluster.pools.settings import LendingSettings
from routing.rates import Rates
from tests.benchmarks.shifts import Kind, shifting
from tests.simulation.routing_world import BLOCK, ENGINE, PROFILE, ours

SLO = Slo(ttft_s=2.0, itl_s=0.025)
PHASE_S = 25.0
LONG_PROMPTS = Kind("long prompts", 8_000, 20, 12.0)
LONG_ANSWERS = Kind("long answers", 4_000, 600, 9.0)


def share_kept(outcome: Outcome, from_s: float, to_s: float) -> float:
    """Of the requests that came between these times."""
    records = [record for record in outcome.records if from_s <= record.arrival_s < to_s]
    return sum(record.keeps(SLO) for record in records) / len(records)


def test_roles_follow_traffic_that_no_single_ratio_can_serve() -> None:
    trace = shifting([LONG_PROMPTS, LONG_ANSWERS, LONG_PROMPTS], PHASE_S, BLOCK)
    simulation = Simulation(split(1, 3, ENGINE), [Gateway(0, ours(), random.Random(7))], trace)
    settings = LendingSettings(ttft_target_s=SLO.ttft_s, itl_target_s=SLO.itl_s)
    lending = Lending(simulation, PoolController(settings, Rates(PROFILE)), 0.25)
    outcome = simulation.run()
    simulation.check()
    assert all(record.finished for record in outcome.records)
    for phase in range(3):
        assert share_kept(outcome, phase * PHASE_S + 10.0, (phase + 1) * PHASE_S) >= 0.95
    assert 2 <= len({lent.at_s for lent in lending.history}) <= 5
