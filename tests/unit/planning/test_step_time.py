"""Timing models: equal to what Dynamo's replay reports, and steps taken together to their sum."""

import pytest

from cluster.planning.step_time import (
    NO_PREFILL,
    DynamoPolynomial,
    LinearStepTime,
    Prefill,
    ProfiledStepTime,
    StepTime,
)
from routing.profile import Profile

CAPACITY = 16_384 * 64
RATES = Profile(
    prefill_step_s=0.003,
    prefill_token_s=2e-5,
    prefill_attention_s=1e-9,
    chunk_tokens=8_192,
    decode_step_s=0.008,
    decode_request_s=5e-5,
    decode_context_token_s=4e-8,
    max_running=256,
    kv_bytes_per_token=131_072,
    host_bytes_per_s=5e10,
    host_latency_s=0.0,
    remote_bytes_per_s=2e10,
    remote_latency_s=0.0,
)


def test_prefill_and_decode_take_what_dynamos_replay_reports() -> None:
    model = DynamoPolynomial(CAPACITY)
    assert 1000 * model.step_s(Prefill(7_236), 0, 0) == pytest.approx(148.412166)
    assert 1000 * model.step_s(NO_PREFILL, 1, 7_237) == pytest.approx(6.111537, abs=1e-6)
    assert 1000 * sum(model.step_s(Prefill(n), 0, 0) for n in (8_192, 8_192, 6_757)) == pytest.approx(476.591327)


def test_a_step_that_does_both_takes_the_sum() -> None:
    model = DynamoPolynomial(CAPACITY)
    both = model.step_s(Prefill(1_000), 3, 50_000)
    assert both == pytest.approx(model.step_s(Prefill(1_000), 0, 0) + model.step_s(NO_PREFILL, 3, 50_000))


def test_a_few_prompt_tokens_ride_along_in_a_decode_step() -> None:
    model = DynamoPolynomial(CAPACITY, rider_tokens=256)
    decode_s = model.step_s(NO_PREFILL, 3, 50_000)
    assert decode_s < model.step_s(Prefill(256), 3, 50_000) < decode_s + 0.005
    assert model.step_s(Prefill(257), 3, 50_000) > decode_s + 0.016
    assert model.step_s(Prefill(1), 0, 0) >= model.step_s(NO_PREFILL, 1, 0)


@pytest.mark.parametrize(
    "model", [DynamoPolynomial(CAPACITY), LinearStepTime(0.01, 0.0002, 0.0001), ProfiledStepTime(RATES)]
)
@pytest.mark.parametrize(
    ("steps", "decoding", "context"), [(1, 1, 0), (7, 3, 5_000), (500, 40, 900_000), (50, 9, 1 << 20)]
)
def test_steps_taken_together_take_the_sum_of_their_times(
    model: StepTime, steps: int, decoding: int, context: int
) -> None:
    one_by_one = sum(model.step_s(NO_PREFILL, decoding, context + i * decoding) for i in range(steps))
    assert model.run_s(steps, decoding, context) == pytest.approx(one_by_one)


def test_a_profiled_step_takes_what_the_router_predicts_of_it() -> None:
    model = ProfiledStepTime(RATES)
    assert model.step_s(Prefill(1_000, 1_000 * (500 + 500)), 0, 0) == pytest.approx(RATES.prefill_s(1_000, 500))
    assert model.step_s(NO_PREFILL, 8, 4_000) == pytest.approx(RATES.step_s(8, 4_000))


def test_a_profiled_step_that_does_both_reads_the_weights_once() -> None:
    model = ProfiledStepTime(RATES)
    both = model.step_s(Prefill(100), 8, 4_000)
    assert both == pytest.approx(RATES.step_s(8, 4_000) + 100 * RATES.prefill_token_s)
