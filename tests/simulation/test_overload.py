"""Three times as much as the cluster can take, for a minute: where prefill is short, and where decode is."""

import asyncio
from collections import Counter

import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.gateway.failures import retry_after
from cluster.planning.quantiles import quantile
from kvtransfer.tenant import tenant_of
from tests.simulation.overload import MAX_WAIT_S, Overload, Site, answered, made, ttfts
from tests.simulation.virtual_clock import run_virtual

PREFILL_BOUND = Site(prefills=4, decodes=4, prompts=range(500, 1_500), outputs=range(4, 5))
PREFILLED_PER_S = PREFILL_BOUND.prefilled_per_s / 1_000
"""Requests, of which a prompt has a thousand tokens."""


def decode_bound(outputs: range) -> Site:
    """Short prompts and long answers."""
    return Site(6, 2, prompts=range(50, 150), outputs=outputs, places=12, step_s=0.02, steps_at_once=10)


def told_s(retry_after_s: float) -> float:
    """As clients that know no more than the standard's header are told."""
    return float(dict(retry_after(429, retry_after_s))[b"retry-after"])


def target_s(site: Site) -> float:
    """Time to first token of whoever is admitted: the longest wait, and what its prompt takes alone."""
    return MAX_WAIT_S + site.slowest_prompt_s + 0.1


def overload(site: Site, per_s: float, seed: int, then_s: float = 20.0) -> Overload:
    """A minute of three times `per_s`, which is what the site can take, then half of it."""

    async def main() -> Overload:
        world = Overload(site, seed)
        async with asyncio.TaskGroup() as group:
            await world.send(group, 3 * per_s, 60.0)
            await world.send(group, 0.5 * per_s, then_s)
        world.coordinator.check()
        assert world.coordinator.statistics().admission.in_flight == 0
        return world

    return run_virtual(main())


def test_where_prefill_is_short_nobody_who_is_admitted_is_harmed() -> None:
    world = overload(PREFILL_BOUND, PREFILLED_PER_S, seed=1)
    tries, local = world.tries, [at for at in world.queues.local_at if at <= 60.0]
    assert not local, "decode replicas took part: the capacity is not what it is taken to be"
    refused = [t for t in tries if t.retry_after_s is not None]
    assert len(refused) > 1_500
    assert quantile(ttfts(tries, 0.0), 0.99) <= target_s(PREFILL_BOUND)
    goodput = sum(t.tokens for t in answered(tries, 0.0, 60.0)) / 60.0
    assert goodput >= 0.95 * PREFILL_BOUND.prefilled_per_s
    assert not [t for t in refused if t.at_s > 65.0]
    assert not [t for t in tries if t.at_s > 65.0 and t.goes_at != t.at_s]
    assert quantile(ttfts(tries, 65.0), 0.99) <= 0.5 + PREFILL_BOUND.slowest_prompt_s


@pytest.mark.parametrize("outputs", [range(200, 201), range(50, 351), range(40, 121)], ids=["equal", "mixed", "short"])
def test_where_decode_is_short_who_is_admitted_finds_a_place(outputs: range) -> None:
    site = decode_bound(outputs)
    length = sum(outputs) / len(outputs)
    world = overload(site, site.decoded_per_s / length, seed=1, then_s=15.0)
    refused = [t for t in world.tries if t.retry_after_s is not None]
    assert len(refused) > len(world.tries) / 2
    assert quantile(ttfts(world.tries, 0.0), 0.99) <= target_s(site)
    assert made(world.tries, 5.0, 60.0) / 55.0 >= 0.95 * site.decoded_per_s
    assert not [t for t in refused if t.at_s > 65.0]
    assert max(world.workers.seats(f"d{i}").most_waiting for i in range(site.decodes)) <= 1
    assert quantile(ttfts(world.tries, 65.0), 0.99) <= 0.5 + site.slowest_prompt_s


def test_retry_after_is_right_within_half() -> None:
    """It is when the last of those that were in line before would have gone, and with it one that had come then."""

    async def main() -> Overload:
        world = Overload(PREFILL_BOUND, seed=2)
        async with asyncio.TaskGroup() as group:
            await world.send(group, 3 * PREFILLED_PER_S, 60.0)
        return world

    tries = run_virtual(main()).tries
    ratios = []
    for each in tries:
        if each.retry_after_s is not None:
            before = (t.goes_at for t in tries if t.goes_at is not None and t.at_s <= each.refused_at)
            ratios.append(told_s(each.retry_after_s) / (max(before) - each.refused_at))
    assert len(ratios) > 1_500
    assert sum(0.5 <= ratio <= 1.5 for ratio in ratios) >= 0.99 * len(ratios), (min(ratios), max(ratios))


def test_a_greedy_tenant_gets_no_more_than_its_share_while_another_waits() -> None:
    async def main() -> Overload:
        world = Overload(PREFILL_BOUND, seed=3, line=LineSettings(weights={tenant_of("big"): 2.0}))
        async with asyncio.TaskGroup() as group:
            for tenant, times in (("greedy", 4.0), ("modest", 0.7), ("big", 1.5)):
                group.create_task(world.send(group, times * PREFILLED_PER_S, 40.0, tenant))
        return world

    tokens: Counter[str | None] = Counter()
    for each in answered(run_virtual(main()).tries, 10.0, 40.0):
        tokens[each.tenant] += each.tokens
    total = sum(tokens.values())
    assert tokens["greedy"] <= 1.1 * total / 4
    assert tokens["big"] >= 0.9 * total / 2


def test_a_greedy_tenant_of_short_requests_gets_its_share_too() -> None:
    """All that may wait is less than a thousand tokens: turns of that size would be longer than anybody waits."""
    site = Site(2, 2, prompts=range(40, 41), outputs=range(10, 41), places=8, step_s=0.1)

    async def main() -> Overload:
        world = Overload(site, seed=5)
        per_s = site.decoded_per_s / 25
        async with asyncio.TaskGroup() as group:
            group.create_task(world.send(group, 2.25 * per_s, 30.0, "greedy"))
            group.create_task(world.send(group, 0.75 * per_s, 30.0, "modest"))
        return world

    tokens: Counter[str | None] = Counter()
    for each in answered(run_virtual(main()).tries, 5.0, 30.0):
        tokens[each.tenant] += each.tokens + each.output
    assert tokens["greedy"] <= 1.1 * sum(tokens.values()) / 2


def test_who_gives_a_deadline_gets_its_first_token_by_then_or_a_refusal_at_once() -> None:
    async def main() -> Overload:
        world = Overload(PREFILL_BOUND, seed=4)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.send(group, 1.5 * PREFILLED_PER_S, 20.0))
            group.create_task(world.send(group, 1.5 * PREFILLED_PER_S, 20.0, "hurried", first_token_s=1.0))
        return world

    hurried = [each for each in run_virtual(main()).tries if each.tenant == "hurried"]
    refused = [each for each in hurried if each.retry_after_s is not None]
    assert len(refused) > 100
    assert quantile([each.refused_at - each.at_s for each in refused], 0.8) == 0.0
    answered_s = ttfts(hurried, 0.0)
    assert len(answered_s) > 100
    assert quantile(answered_s, 0.99) <= 1.0 + 0.1
