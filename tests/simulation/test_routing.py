"""The router in a whole cluster, in virtual time: hot prefixes, bursts, idle clusters, several gateways, deaths."""

import random
from dataclasses import replace

import pytest

from cluster.planning.outcome import Outcome
from cluster.planning.quantiles import mean
from cluster.planning.settings import NetworkSettings, split
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace, TraceRequest
from tests.simulation.routing_world import (
    BLOCK,
    ENGINE,
    closed_loop,
    cluster,
    gateways,
    minds,
    ours,
    prompt,
    run,
    spread,
)

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hot_prefix_costs_no_more_than_without_it_and_leaves_no_worker_idle(seed: int) -> None:
    requests = [prompt(0.0, 900, 100, 200, number) for number in range(256)]
    hot = closed_loop(requests, 64, 4, *gateways(ours, seed=seed))
    least = closed_loop(requests, 64, 4, *gateways(minds.least_work, seed=seed))
    assert _mean_latency_s(hot) <= 1.05 * _mean_latency_s(least)
    assert min(worker.requests for worker in hot.workers) >= 256 / 4 / 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("prefill", "decode", "prompt_tokens", "output_tokens"), [(0, 8, 8_192, 16), (4, 4, 2_048, 200)]
)
def test_equal_cold_prompts_at_once_are_computed_at_most_twice(
    prefill: int, decode: int, prompt_tokens: int, output_tokens: int, seed: int
) -> None:
    """On workers that do everything and have no store this holds for short answers; longer ones are worth more than a
    second prefill. Those with stores: see `test_bursts`.
    """
    requests = [prompt(0.0, prompt_tokens, 0, output_tokens, 0) for _ in range(64)]
    settings = replace(split(prefill, decode, ENGINE), max_tokens=output_tokens)
    simulation = Simulation(settings, gateways(ours, seed=seed), Trace(requests, BLOCK))
    outcome = simulation.run()
    simulation.check()
    assert sum(record.computed_tokens > prompt_tokens / 2 for record in outcome.records) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_different_cold_prompts_at_once_spread_evenly(seed: int) -> None:
    outcome = run([prompt(0.0, 0, 2_048, 200, number) for number in range(64)], 8, gateways(ours, seed=seed))
    assert spread(outcome) <= 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_different_cold_prompts_one_after_the_other_spread_evenly_over_an_idle_cluster(seed: int) -> None:
    outcome = closed_loop([prompt(0.0, 0, 2_048, 20, n) for n in range(64)], 1, 8, *gateways(ours, seed=seed))
    assert spread(outcome) <= 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_two_gateways_balance_bursts_nearly_as_well_as_one(seed: int) -> None:
    requests = _bursts(seed)
    one, two = (run(requests, 8, gateways(ours, count, seed)) for count in (1, 2))
    assert _imbalance(two) <= 1.1 * _imbalance(one)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_killed_under_load_is_gone_at_once_and_everything_is_answered(seed: int) -> None:
    requests = [prompt(0.01 * number, 256, 2_048, 100, number % 40) for number in range(200)]
    [gateway] = minds_of = gateways(ours, seed=seed)
    simulation = Simulation(cluster(4), minds_of, Trace(requests, BLOCK))

    def kill() -> None:
        assert gateway.mind.ledger.load("d1").requests > 0
        simulation.kill("d1")
        assert gateway.mind.ledger.load("d1").requests == 0
        assert gateway.mind.index is not None
        for request in requests:
            found = gateway.mind.index.longest_prefix(request.keys, simulation.events.now)
            assert not {"d1"} & {*found.device, *found.host, *found.promised}
        gateway.mind.ledger.check()

    simulation.at(1.0, kill)
    outcome = simulation.run()
    simulation.check()
    assert all(record.finished for record in outcome.records)
    assert max(record.attempts for record in outcome.records) == 2


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, second = (run(_bursts(5), 8, gateways(ours, 2)) for _ in range(2))
    assert first.records == second.records
    assert first.workers == second.workers


def test_late_reports_and_events_change_little() -> None:
    requests = _bursts(4)
    late = NetworkSettings(event_delay_s=0.05, report_period_s=1.0)
    outcome = Simulation(cluster(8, late), gateways(ours, 2), Trace(requests, BLOCK)).run()
    assert _imbalance(outcome) <= 1.1 * _imbalance(run(requests, 8, gateways(ours)))


def _bursts(seed: int) -> list[TraceRequest]:
    """40 bursts of 24 prompts of very different lengths, half of them continuing a conversation."""
    rng = random.Random(seed)
    return [
        prompt(0.5 * burst, 0, rng.randrange(200, 6_000), rng.randrange(20, 200), rng.randrange(12) + 12 * (burst // 4))
        for burst in range(40)
        for _ in range(24)
    ]


def _mean_latency_s(outcome: Outcome) -> float:
    return mean([record.latency_s for record in outcome.records])


def _imbalance(outcome: Outcome) -> float:
    busy = [worker.busy_s for worker in outcome.workers]
    return max(busy) / mean(busy)
