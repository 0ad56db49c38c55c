"""Trials are simulations: the same each time, cut short when hopeless; the whole planner on a small workload."""

import random
from collections.abc import Sequence
from math import inf

import pytest

from cluster.planning.outcome import Slo
from cluster.planning.planner.answer import Wish, answer
from cluster.planning.planner.demand import batch_at, demand_of
from cluster.planning.planner.question import CannotPlan, Engine, Question
from cluster.planning.planner.survey import ratios
from cluster.planning.planner.topology import Topology, topologies
from cluster.planning.planner.trial import Ask, Trial, Window, run_trial
from cluster.planning.synthetic import synthesize
from cluster.planning.trace import statistics
from cluster.rates import router_profile
from configs.profiles import named
from configs.workload import ArrivalsConfig, LengthsConfig, PhaseConfig, WorkloadConfig

SLO = Slo(0.5, 0.02)


def question(prompt: float = 6_000, output: float = 200, per_s: float = 6.0, duration_s: float = 60) -> Question:
    phase = PhaseConfig(
        duration_s=duration_s,
        arrivals=ArrivalsConfig(rate_per_s=per_s),
        prompt=LengthsConfig(mean_tokens=prompt, variation=0.3),
        output=LengthsConfig(mean_tokens=output, variation=0.3),
    )
    profile = named("h100/llama-3-8b")
    trace = synthesize(WorkloadConfig(phases=[phase]), 512)
    return Question(trace, Engine.profiled(router_profile(profile), profile.kv_tokens), SLO, itl_target_s=SLO.itl_s)


def run(asked: Question, topology: Topology, load: float = 1.0, most_bad: float = inf) -> Trial:
    ask = Ask(topology, (Window(0, len(asked.trace)),), load, most_bad)
    return run_trial(asked, ask, random.Random(1))


def test_a_trial_is_the_same_each_time() -> None:
    asked = question()
    assert run(asked, Topology(2, 2)) == run(asked, Topology(2, 2))


def test_a_hopeless_trial_is_given_up() -> None:
    asked = question()
    whole, cut = run(asked, Topology(1, 1), 4.0), run(asked, Topology(1, 1), 4.0, most_bad=20)
    assert cut.given_up
    assert not whole.given_up
    assert whole.share < 0.9
    assert cut.good < whole.good


def test_a_bound_that_is_kept_changes_nothing() -> None:
    asked = question()
    free, bound = run(asked, Topology(3, 3)), run(asked, Topology(3, 3), most_bad=len(asked.trace))
    assert (free.good, free.ttft_p99_s, free.itl_p99_s) == (bound.good, bound.ttft_p99_s, bound.itl_p99_s)


def test_a_request_that_fits_nowhere_is_refused_before_anything_is_simulated() -> None:
    with pytest.raises(CannotPlan, match="does not fit in the KV cache"):
        question(prompt=120_000)


def test_the_planned_ratio_is_as_good_as_the_best_of_all() -> None:
    asked = question(per_s=15, duration_s=20)

    def attempt(asks: Sequence[Ask]) -> list[Trial]:
        return [run_trial(asked, ask, random.Random(1)) for ask in asks]

    planned = answer(asked, Wish(4), attempt, lambda text: None).best
    best = max(run(asked, topology).good for topology in topologies(4))
    assert run(asked, planned.topology).good >= 0.98 * best


def test_prompts_call_for_prefill_and_answers_for_decode() -> None:
    rates = named("h100/llama-3-8b")
    long_prompts, long_answers = (
        demand_of(statistics(asked.trace), router_profile(rates), rates.kv_tokens, SLO)
        for asked in (question(prompt=20_000, output=50), question(prompt=500, output=1_500))
    )
    assert long_prompts.divide(8).prefill > 4 > long_answers.divide(8).prefill


def test_a_batch_is_bounded_by_target_memory_and_engine() -> None:
    rates = router_profile(named("h100/llama-3-8b"))
    assert rates.step_s(batch_at(rates, 4_000, 10**9, 0.02), 4_000 * batch_at(rates, 4_000, 10**9, 0.02)) <= 0.02
    assert batch_at(rates, 4_000, 40_000, 0.02) == 10
    assert batch_at(rates, 1, 10**9, 10.0) == rates.max_running
    assert batch_at(rates, 4_000, 10**9, 0.0001) == 1


def test_a_picture_has_the_choice_its_neighbours_and_both_ends() -> None:
    shown = ratios(Topology(10, 22))
    assert {Topology(0, 32), Topology(9, 23), Topology(10, 22), Topology(11, 21), Topology(31, 1)} <= set(shown)
    assert len(shown) <= 11
    assert ratios(Topology(0, 2)) == [Topology(0, 2), Topology(1, 1)]
