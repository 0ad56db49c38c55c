"""Timing models: equal to what Dynamo's replay reports, and steps taken together to their sum."""

import pytest

from cluster.planning.step_time import DynamoPolynomial, LinearStepTime, StepTime

CAPACITY = 16_384 * 64


def test_prefill_and_decode_take_what_dynamos_replay_reports() -> None:
    model = DynamoPolynomial(CAPACITY)
    assert 1000 * model.step_s(7_236, 0, 0) == pytest.approx(148.412166)
    assert 1000 * model.step_s(0, 1, 7_237) == pytest.approx(6.111537, abs=1e-6)
    assert 1000 * sum(model.step_s(n, 0, 0) for n in (8_192, 8_192, 6_757)) == pytest.approx(476.591327)


def test_a_step_that_does_both_takes_the_sum() -> None:
    model = DynamoPolynomial(CAPACITY)
    both = model.step_s(1_000, 3, 50_000)
    assert both == pytest.approx(model.step_s(1_000, 0, 0) + model.step_s(0, 3, 50_000))


def test_a_few_prompt_tokens_ride_along_in_a_decode_step() -> None:
    model = DynamoPolynomial(CAPACITY, rider_tokens=256)
    decode_s = model.step_s(0, 3, 50_000)
    assert decode_s < model.step_s(256, 3, 50_000) < decode_s + 0.005
    assert model.step_s(257, 3, 50_000) > decode_s + 0.016
    assert model.step_s(1, 0, 0) >= model.step_s(0, 1, 0)


@pytest.mark.parametrize("model", [DynamoPolynomial(CAPACITY), LinearStepTime(0.01, 0.0002, 0.0001)])
@pytest.mark.parametrize(
    ("steps", "decoding", "context"), [(1, 1, 0), (7, 3, 5_000), (500, 40, 900_000), (50, 9, 1 << 20)]
)
def test_steps_taken_together_take_the_sum_of_their_times(
    model: StepTime, steps: int, decoding: int, context: int
) -> None:
    one_by_one = sum(model.step_s(0, decoding, context + i * decoding) for i in range(steps))
    assert model.run_s(steps, decoding, context) == pytest.approx(one_by_one)
