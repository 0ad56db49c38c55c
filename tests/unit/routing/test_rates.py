"""What is learnt of replicas."""

from random import Random

import pytest

from routing.fleet import Role
from routing.output_lengths import OutputLengths
from routing.prediction_error import PredictionError
from routing.rates import Decoded, Loaded, Metric, Prefilled, Rates
from tests.unit.routing.fleets import PROFILE

ONCE = PROFILE.prefill_s(1000)


def observed(*seconds: float, replica_id: str = "a", rates: Rates | None = None) -> Rates:
    rates = rates or Rates(PROFILE)
    for each in seconds:
        rates.observe(Prefilled(replica_id, Role.PREFILL, 1000, 0, each))
    return rates


def test_without_observations_the_profile_holds() -> None:
    assert Rates(PROFILE).factor("a", Role.DECODE, Metric.STEP) == 1.0


def test_a_wrong_profile_is_corrected_within_a_few_requests() -> None:
    assert observed(*[3 * ONCE] * 3).factor("a", Role.PREFILL, Metric.PREFILL) == pytest.approx(3.0)


def test_a_new_replica_starts_from_its_pool() -> None:
    rates = observed(*[3 * ONCE] * 5)
    assert rates.factor("new", Role.PREFILL, Metric.PREFILL) == pytest.approx(3.0)


def test_a_pool_that_was_never_seen_at_it_starts_from_the_other_pool_and_then_learns_for_itself() -> None:
    rates = observed(*[3 * ONCE] * 5)
    assert rates.factor("new", Role.DECODE, Metric.PREFILL) == pytest.approx(3.0)
    rates.observe(Prefilled("new", Role.DECODE, 1000, 0, ONCE))
    assert rates.factor("new", Role.DECODE, Metric.PREFILL) == pytest.approx(1.0)


def test_metrics_are_corrected_apart() -> None:
    rates = Rates(PROFILE)
    rates.observe(Loaded("a", Role.DECODE, 1000, 2 * PROFILE.load_s(1000)))
    rates.observe(Decoded("a", Role.DECODE, 8, 4000, PROFILE.step_s(8, 4000) / 2))
    assert rates.factor("a", Role.DECODE, Metric.LOAD) == pytest.approx(2.0)
    assert rates.factor("a", Role.DECODE, Metric.STEP) == pytest.approx(0.5)
    assert rates.factor("a", Role.DECODE, Metric.PREFILL) == 1.0


def test_outliers_move_a_correction_little() -> None:
    rates = observed(*[ONCE] * 20, 1000 * ONCE)
    assert rates.factor("a", Role.PREFILL, Metric.PREFILL) == pytest.approx(1.0, rel=0.06)


def test_a_lasting_change_is_followed() -> None:
    assert observed(*[ONCE] * 20, *[2 * ONCE] * 60).factor("a", Role.PREFILL, Metric.PREFILL) == pytest.approx(
        2, rel=0.05
    )


def test_corrections_are_bounded() -> None:
    assert observed(*[1e9] * 9).factor("a", Role.PREFILL, Metric.PREFILL) == pytest.approx(64.0)
    assert observed(*[1e-9] * 9).factor("a", Role.PREFILL, Metric.PREFILL) == pytest.approx(1 / 64)


def test_what_took_no_time_teaches_nothing() -> None:
    assert observed(0.0).version == 0


def test_noise_does_not_tell_replicas_apart_but_a_slow_one_is_told() -> None:
    rng, rates = Random(0), Rates(PROFILE)
    for _ in range(40):
        for replica_id in ("a", "b", "c"):
            observed(ONCE * rng.uniform(0.93, 1.07), replica_id=replica_id, rates=rates)
        observed(2 * ONCE, replica_id="slow", rates=rates)
    a, b, c, slow = (rates.factor(r, Role.PREFILL, Metric.PREFILL) for r in ("a", "b", "c", "slow"))
    assert a == pytest.approx(b, rel=0.06) == pytest.approx(c, rel=0.06)
    assert slow > 1.5 * a


def test_a_replica_that_is_gone_is_forgotten() -> None:
    rates = observed(*[ONCE] * 30)
    observed(*[4 * ONCE] * 30, replica_id="b", rates=rates)
    rates.forget("b")
    assert rates.factor("b", Role.PREFILL, Metric.PREFILL) == rates.factor("new", Role.PREFILL, Metric.PREFILL)


def test_output_lengths_are_learnt_by_size_of_max_tokens_and_never_exceed_it() -> None:
    lengths = OutputLengths(first_guess=256)
    assert (lengths.expected(16), lengths.expected(4096)) == (16, 256)
    for _ in range(200):
        lengths.observe(4096, 80)
    assert lengths.expected(4096) == pytest.approx(80, abs=2)
    assert lengths.expected(1024) == 256
    lengths.observe(16, 0)
    assert 1 <= lengths.expected(16) <= 16


def test_the_median_error_is_of_the_latest_predictions() -> None:
    error = PredictionError(window=3)
    assert error.median is None
    for predicted in (100.0, 1.1, 0.8, 1.0):
        error.observe(predicted, 1.0)
    error.observe(5.0, 0.0)
    assert error.median == pytest.approx(0.1)
