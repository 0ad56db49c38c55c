"""The router benchmark's own instruments: both sides are asked the same, and ours answers right."""

import gc
from collections import defaultdict
from collections.abc import Iterator

import pytest

from routing.block_keys import PromptKeys
from tests.benchmarks import router_workload as workload
from tests.benchmarks.router_ours import Ours
from tests.benchmarks.router_report import Figures, as_text


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What the benchmark keeps from the collector is given back to it."""
    yield
    gc.unfreeze()


def test_our_side_finds_what_the_workload_stored() -> None:
    ours = Ours()
    sequences = ours.prepare(workers=4, blocks=20_000)
    ours.store(0, sequences)
    ours.remove(0, 5)
    for number, blocks in enumerate(workload.lookups(ours.stored, 20, seed=1)):
        depths = ours.index.longest_prefix(PromptKeys(blocks.tokens).at(workload.BLOCK_TOKENS), 0.0).device
        assert max(depths.values()) == (workload.SEQUENCE_BLOCKS if number % 2 else workload.PREFIX_BLOCKS)
    ours.index.check()


def test_a_cycle_leaves_nothing_reserved() -> None:
    ours = Ours()
    ours.store(0, ours.prepare(workers=4, blocks=5_000))
    times = ours.cycle(tokens=2_048, count=3, seed=1)
    assert {part: len(values) for part, values in times.items()} == dict.fromkeys(
        ("cycle", "hash", "route", "ledger"), 3
    )
    assert ours.ledger.statistics().open_leases == 0


def test_prompts_are_as_long_as_said_and_the_same_for_both_sides() -> None:
    stored = workload.sequences(workers=2, blocks=1_000)
    for tokens in (2_048, 8_192):
        first, second = (list(workload.prompts(stored, tokens, count=3, seed=7)) for _ in range(2))
        assert first == second
        assert [len(prompt) for prompt in first] == [tokens] * 3


def test_without_the_rival_the_report_has_ours_alone() -> None:
    figures: Figures = defaultdict(list)
    for part in ("cycle", "hash", "route", "ledger"):
        figures["ours", "64 workers, 2,048 tokens", part] = [100.0, 200.0]
    for event in ("stored", "removed"):
        for clock in ("wall_us", "cpu_us", "wire_wall_us", "wire_cpu_us"):
            figures["ours", event, clock] = [0.5]
    figures["ours", "lookup", "wall_us"] = [9.0]
    figures["ours", "memory", "resident"] = figures["ours", "memory", "accounted"] = [100.0]
    lines = [line.split() for line in as_text(figures, 1_000).splitlines()]
    assert ["64", "workers,", "2,048", "tokens", "150", "(100–200)", "-", "-", "at", "most", "0.5", "2"] in lines
