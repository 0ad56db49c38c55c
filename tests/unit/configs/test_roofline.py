"""Profiles by roofline: near what was published, larger where they should be, refused where nothing fits."""

import pytest

from configs import profiles
from configs.errors import ConfigError
from configs.hardware import ACCELERATORS
from configs.model_shapes import MODELS
from configs.profile_file import ProfileConfig
from configs.profile_names import RooflineName, roofline_name
from configs.roofline import least_count, roofline


def prefill_s(profile: ProfileConfig, tokens: int) -> float:
    """A prompt alone, as `routing.profile` computes it, but for its steps."""
    assert profile.prefill_token_s is not None
    assert profile.prefill_attention_s is not None
    return profile.prefill_token_s * tokens + profile.prefill_attention_s * tokens * tokens / 2


def test_names_are_hardware_count_and_model() -> None:
    assert roofline_name("h100x4/llama-3-70b") == RooflineName("h100", 4, "llama-3-70b")
    assert roofline_name("mi300x/llama-3-8b") == RooflineName("mi300x", 1, "llama-3-8b")
    assert roofline_name("abacus/llama-3-8b") is None
    assert str(RooflineName("b200", 2, "qwen3-32b")) == "b200x2/qwen3-32b"


@pytest.mark.parametrize("name", ["h100/llama-3-8b", "h100_8b"])
@pytest.mark.parametrize(("tokens", "published_s"), [(8_192, 0.250), (32_768, 1.173)])
def test_an_8b_on_an_h100_computes_prompts_about_as_fast_as_published(
    name: str, tokens: int, published_s: float
) -> None:
    assert prefill_s(profiles.named(name), tokens) == pytest.approx(published_s, rel=0.2)


def test_an_8b_on_an_h100_decodes_about_as_fast_as_published() -> None:
    step_s = profiles.named("h100/llama-3-8b").decode_step_s
    assert step_s is not None
    assert 0.007 < step_s < 0.015


def test_kv_takes_what_the_shapes_say() -> None:
    assert MODELS["llama-3-8b"].kv_bytes_per_token == 131_072
    assert MODELS["llama-3-70b"].kv_bytes_per_token == 327_680
    assert MODELS["smollm2-135m"].kv_bytes_per_token == 23_040


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_every_model_has_a_profile_on_enough_devices(accelerator: str) -> None:
    for model in MODELS:
        found = roofline(RooflineName(accelerator, least_count(accelerator, model), model))
        assert None not in found.model_dump().values()


def test_more_devices_are_faster_and_hold_more() -> None:
    one, four = profiles.named("h200/llama-3-8b"), profiles.named("h200x4/llama-3-8b")
    assert four.kv_tokens > 4 * one.kv_tokens
    assert prefill_s(four, 1000) < prefill_s(one, 1000) / 3


def test_a_model_that_does_not_fit_is_refused_with_what_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"h100/llama-3-70b: 4 x NVIDIA H100 SXM 80GB at least"):
        profiles.named("h100/llama-3-70b")
