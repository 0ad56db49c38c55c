"""Equal prompts that come together, to workers that do everything and keep blocks in their nodes' memory."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.planning import minds
from cluster.planning.gateway import Mind
from cluster.planning.outcome import Record
from cluster.planning.quantiles import mean
from cluster.planning.settings import ClusterSettings, aggregated
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace, TraceRequest
from tests.simulation.routing_world import BLOCK, ENGINE, PROFILE, closed_loop_in, gateways, prompt, spread

KV_BYTES = 131_072
KEEPING = replace(ENGINE, kv_bytes_per_token=KV_BYTES, host_blocks=65_536)
OUTPUT = 200


def ours() -> Mind:
    profile = replace(PROFILE, kv_bytes_per_token=KV_BYTES, host_latency_s=0.003, remote_latency_s=0.005)
    return minds.kv_aware(profile, itl_target_s=0.025)


def fleet(workers: int, nodes: int) -> ClusterSettings:
    """The workers take turns on the nodes; those of a node share its memory."""
    settings = replace(aggregated(workers, KEEPING), max_tokens=OUTPUT)
    placed = [replace(worker, node_id=f"n{i % nodes}") for i, worker in enumerate(settings.workers)]
    return replace(settings, workers=tuple(placed))


def burst(shared: int, own: int) -> Sequence[TraceRequest]:
    return [prompt(0.0, shared, own, OUTPUT, number) for number in range(64)]


def computing(records: Sequence[Record], shared: int, own: int) -> int:
    """How many requests computed most of what all of them share."""
    return sum(record.computed_tokens - own > shared / 2 for record in records)


@pytest.mark.parametrize("nodes", [1, 4, 8])
@pytest.mark.parametrize(("shared", "own"), [(900, 0), (900, 100), (2_048, 0), (8_192, 200)])
def test_the_prefix_of_64_cold_prompts_at_once_is_computed_at_most_twice(nodes: int, shared: int, own: int) -> None:
    simulation = Simulation(fleet(8, nodes), gateways(ours), Trace(burst(shared, own), BLOCK))
    outcome = simulation.run()
    simulation.check()
    assert all(record.finished for record in outcome.records)
    assert computing(outcome.records, shared, own) <= 2
    assert min(worker.requests for worker in outcome.workers) >= 6


@pytest.mark.parametrize("nodes", [1, 8])
def test_when_the_worker_that_computes_it_dies_another_does(nodes: int) -> None:
    simulation = Simulation(fleet(8, nodes), gateways(ours), Trace(burst(8_192, 200), BLOCK))

    def kill() -> None:
        simulation.kill(max(simulation.sites, key=lambda name: simulation.sites[name].worker.running))

    simulation.at(0.1, kill)
    outcome = simulation.run()
    simulation.check()
    assert all(record.finished for record in outcome.records)
    assert computing(outcome.records, 8_192, 200) <= 2


def test_64_different_cold_prompts_still_spread_evenly() -> None:
    requests = [prompt(0.0, 0, 2_048, OUTPUT, number) for number in range(64)]
    assert spread(Simulation(fleet(8, 8), gateways(ours), Trace(requests, BLOCK)).run()) <= 1.5


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_hot_prefix_still_costs_no_more_than_with_least_loaded(nodes: int) -> None:
    requests = [prompt(0.0, 900, 100, OUTPUT, number) for number in range(256)]
    hot, least = (closed_loop_in(fleet(4, nodes), requests, 64, *gateways(make)) for make in (ours, minds.least_work))
    latency_s, least_s = (mean([record.latency_s for record in outcome.records]) for outcome in (hot, least))
    assert latency_s <= 1.05 * least_s
    assert min(worker.requests for worker in hot.workers) >= 256 / 4 / 2
