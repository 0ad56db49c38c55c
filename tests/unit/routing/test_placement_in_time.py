"""Where requests end up, and how long they take, in a cluster in virtual time."""

from collections.abc import Callable
from random import Random
from statistics import mean

import pytest

from routing.block_keys import PromptKeys
from routing.fleet import Replica, Role
from routing.index_blocks import BlockIndex
from routing.kv_aware import KvAware, KvAwareSettings
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.rates import Rates
from routing.router import Router, RouteRequest
from tests.unit.routing.cluster_model import PROFILE, World

Make = Callable[[Ledger, BlockIndex], Router]


def kv_aware(ledger: Ledger, index: BlockIndex) -> Router:
    return KvAware(KvAwareSettings(), index, ledger, Rates(PROFILE), OutputLengths())


def least_loaded(ledger: Ledger, index: BlockIndex) -> Router:
    return LeastWork(LeastWorkSettings(), ledger)


def cluster(prefills: int, decodes: int, make: Make = kv_aware, gateways: int = 1, seed: int = 0) -> World:
    names = [(f"p{i}", Role.PREFILL) for i in range(prefills)] + [(f"d{i}", Role.DECODE) for i in range(decodes)]
    world = World([Replica(name, role, "n", "f", 16, 10_000, 4096) for name, role in names], seed=seed)
    for _ in range(gateways):
        world.add_gateway(make)
    return world


def prompt(common: int, own: int, which: int, max_tokens: int) -> RouteRequest:
    """`common` tokens that all prompts share, then `own` of its own."""
    tokens = [*range(common), *(1_000_000 + which * 10_000 + i for i in range(own))]
    return RouteRequest(str(which), len(tokens), max_tokens, keys=PromptKeys(tokens))


def served(world: World, role: Role) -> list[int]:
    return [engine.served for engine in world.engines.values() if engine.replica.role is role]


def hot_prefix(prefills: int, decodes: int, make: Make, gap_s: float) -> World:
    """64 requests with a common prefix of 900 tokens and 200 tokens of output."""
    world = cluster(prefills, decodes, make)
    for i in range(64):
        world.after(i * gap_s, lambda i=i: world.submit(prompt(900, 17, i, 200), 200))
    world.run()
    return world


@pytest.mark.parametrize(("prefills", "decodes"), [(0, 4), (2, 4), (4, 4)])
@pytest.mark.parametrize("gap_s", [0.0, 0.02])
def test_a_hot_prefix_does_not_pile_up(prefills: int, decodes: int, gap_s: float) -> None:
    ours, least = (hot_prefix(prefills, decodes, make, gap_s) for make in (kv_aware, least_loaded))
    assert min(served(ours, Role.DECODE)) >= 12
    assert mean(s.latency_s for s in ours.served) <= 1.05 * mean(s.latency_s for s in least.served)


def test_a_hot_prefix_is_computed_less_often_than_by_least_loaded_where_prefill_can_share_it() -> None:
    ours, least = (hot_prefix(4, 4, make, 0.02) for make in (kv_aware, least_loaded))
    computed = [sum(engine.computed for engine in world.engines.values()) for world in (ours, least)]
    assert computed[0] < 0.6 * computed[1]


@pytest.mark.parametrize(("prefills", "decodes"), [(4, 4), (8, 8)])
@pytest.mark.parametrize("tokens", [900, 1024, 4096])
@pytest.mark.parametrize("output", [1, 200])
def test_64_equal_cold_prompts_at_once_compute_the_prefix_at_most_twice(
    prefills: int, decodes: int, tokens: int, output: int
) -> None:
    world = cluster(prefills, decodes)
    for i in range(64):
        world.after(0.0, lambda i=i: world.submit(prompt(tokens, 0, i, output), output))
    world.run()
    assert sum(engine.computed > 0.9 * tokens for engine in world.engines.values()) <= 2
    assert max(served(world, Role.DECODE)) <= 1.5 * min(served(world, Role.DECODE))


@pytest.mark.parametrize(("prefills", "decodes"), [(0, 8), (8, 8), (4, 4)])
@pytest.mark.parametrize("gap_s", [0.0, 0.05, 5.0])
def test_64_different_cold_prompts_spread_evenly_also_one_by_one_on_an_idle_cluster(
    prefills: int, decodes: int, gap_s: float
) -> None:
    world = cluster(prefills, decodes)
    for i in range(64):
        world.after(i * gap_s, lambda i=i: world.submit(prompt(0, 1000, i, 50), 50))
    world.run()
    for role in Role:
        counts = served(world, role)
        assert not counts or max(counts) <= 1.5 * min(counts)


def bursts(gateways: int, prefills: int, decodes: int, seed: int) -> tuple[float, float]:
    """Bursts of 48 requests of all lengths every two seconds: how uneven they lie afterwards, and the mean latency."""
    world, rng, uneven = cluster(prefills, decodes, gateways=gateways, seed=seed), Random(seed), list[float]()

    def look() -> None:
        sinks = [name for name, engine in world.engines.items() if engine.replica.role is Role.DECODE]
        requests = [sum(g.ledger.load(name).requests for g in world.gateways) for name in sinks]
        uneven.append(max(requests) / mean(requests))

    for burst in range(4):
        for i in range(48):
            asked, output = prompt(0, rng.randint(200, 2000), burst * 48 + i, 300), rng.randint(20, 300)
            at = burst * 2.0 + rng.uniform(0, 0.01)
            world.after(at, lambda a=asked, o=output, g=i % gateways: world.submit(a, o, g))
        world.after(burst * 2.0 + 0.0101, look)
    world.run()
    return mean(uneven), mean(s.latency_s for s in world.served)


@pytest.mark.parametrize(("prefills", "decodes"), [(0, 8), (4, 4)])
def test_two_gateways_in_bursts_do_nearly_as_well_as_one(prefills: int, decodes: int) -> None:
    one, two = ([bursts(n, prefills, decodes, seed) for seed in range(2)] for n in (1, 2))
    assert mean(uneven for uneven, _ in two) <= 1.1 * mean(uneven for uneven, _ in one)
    assert mean(latency for _, latency in two) <= 1.1 * mean(latency for _, latency in one)


def test_the_second_turn_of_a_conversation_is_computed_where_the_first_was_decoded() -> None:
    world = cluster(2, 4)
    world.submit(prompt(1000, 0, 0, 50), 50)
    world.run()
    world.submit(prompt(1000, 40, 1, 50), 50)
    world.run()
    first, second = (s.decision for s in world.served)
    assert (first.prefill is not None, second.prefill, second.decode) == (True, None, first.decode)
    assert second.predicted is not None
    assert second.predicted.computed_tokens == 1040 - 62 * 16


def test_first_tokens_of_a_lone_request_come_when_predicted() -> None:
    for prefills in (0, 2):
        world = cluster(prefills, 2)
        world.submit(prompt(1500, 0, 0, 50), 50)
        world.run()
        (only,) = world.served
        assert only.decision.predicted is not None
        assert only.ttft_s == pytest.approx(only.decision.predicted.ttft_s, rel=0.1)
