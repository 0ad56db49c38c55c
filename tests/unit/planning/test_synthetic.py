"""Described workloads: what is asked for comes out, the same every time."""

from pathlib import Path

import pytest

from cluster.planning.synthetic import synthesize
from cluster.planning.trace import statistics
from cluster.planning.trace_files import read_trace
from configs.errors import ConfigError
from configs.workload import (
    ArrivalsConfig,
    LengthsConfig,
    PhaseConfig,
    PrefixLevelConfig,
    WorkloadConfig,
    load_workload,
)

DESCRIBED = """
seed: 7
phases:
- duration_s: 100
  arrivals: {rate_per_s: 2}
  prompt: {mean_tokens: 1000}
  output: {mean_tokens: 50}
"""


def workload(seed: int = 1, prefixes: tuple[PrefixLevelConfig, ...] = (), variation: float = 1.0) -> WorkloadConfig:
    phase = PhaseConfig(
        duration_s=400,
        arrivals=ArrivalsConfig(rate_per_s=5, variation=variation),
        prompt=LengthsConfig(mean_tokens=2000, variation=0.5),
        output=LengthsConfig(mean_tokens=100, least_tokens=20),
        prefixes=prefixes,
    )
    return WorkloadConfig(phases=(phase, phase), seed=seed)


def test_the_same_seed_gives_the_same_requests_and_another_others() -> None:
    assert synthesize(workload()) == synthesize(workload())
    assert synthesize(workload(seed=1)) != synthesize(workload(seed=2))


def test_rates_and_lengths_are_those_described() -> None:
    trace = synthesize(workload())
    told = statistics(trace)
    assert told.requests == pytest.approx(4000, rel=0.1)
    assert told.mean_prompt_tokens == pytest.approx(2000, rel=0.05)
    assert told.mean_output_tokens == pytest.approx(100, rel=0.1)
    assert told.reuse == 0.0
    arrivals = [request.arrival_s for request in trace.requests]
    assert arrivals == sorted(arrivals)
    assert 0 <= arrivals[0] < arrivals[-1] < 800
    assert min(request.output_tokens for request in trace.requests) == 20


def test_without_variation_requests_come_like_a_clock() -> None:
    arrivals = [request.arrival_s for request in synthesize(workload(variation=0)).requests]
    assert arrivals[:3] == pytest.approx([0.2, 0.4, 0.6])


def test_prompts_share_a_path_through_the_tree_and_nothing_below_it() -> None:
    levels = (PrefixLevelConfig(tokens=512, choices=2), PrefixLevelConfig(tokens=128, choices=3))
    trace = synthesize(workload(prefixes=levels), 64)
    long = [request for request in trace.requests if request.prompt_tokens >= 704]
    assert len({tuple(request.keys[:8]) for request in long}) == 2
    assert len({tuple(request.keys[:10]) for request in long}) == 6
    assert len({tuple(request.keys[:11]) for request in long}) == len(long)
    assert all(len(request.keys) == request.prompt_tokens // 64 for request in trace.requests)


def test_skew_makes_the_first_choice_the_most_frequent() -> None:
    even, skewed = (
        synthesize(workload(prefixes=(PrefixLevelConfig(tokens=64, choices=50, skew=skew),))) for skew in (0.0, 1.5)
    )

    def most(requests: list[int]) -> float:
        return max(requests.count(key) for key in set(requests)) / len(requests)

    assert most([r.keys[0] for r in even.requests if r.keys]) < 0.1
    assert most([r.keys[0] for r in skewed.requests if r.keys]) > 0.3


def test_a_description_is_a_trace_file(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(DESCRIBED)
    assert read_trace(file) == synthesize(load_workload(file))


def test_a_mistake_in_a_description_is_named_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(DESCRIBED.replace("mean_tokens: 50", "mean_token: 50"))
    with pytest.raises(ConfigError) as caught:
        load_workload(file)
    text = str(caught.value)
    assert "w.yaml: phases[0].output.mean_token: unknown key; did you mean 'mean_tokens'?" in text
    assert "w.yaml: phases[0].output.mean_tokens: is required" in text
