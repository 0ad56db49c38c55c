import pytest

from cluster.engines.simulated.cost import StepCost


def test_a_step_costs_a_fixed_part_and_a_part_for_each_request_and_prompt_token() -> None:
    cost = StepCost(step_s=0.01, request_s=0.001, prefill_token_s=0.0001, speed=1.0)
    assert cost.duration_s(prompt_tokens=100, decoding=4) == pytest.approx(0.024)


def test_speed_makes_time_pass_faster() -> None:
    assert StepCost(0.01, 0.0, 0.0, speed=4.0).duration_s(0, 1) == pytest.approx(0.0025)
