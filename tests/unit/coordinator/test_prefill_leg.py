"""The prefill leg's sampling parameters."""

import msgspec
import pytest

from cluster.coordinator.prefill_leg import prefill_sampling

ONE_TOKEN = {"max_tokens": 1, "temperature": 0.0, "detokenize": False, "output_kind": 1}


def leg(**sampling: object) -> dict[str, object]:
    return msgspec.msgpack.decode(prefill_sampling(msgspec.msgpack.encode(sampling)))


def test_it_asks_for_one_greedy_token_without_text() -> None:
    assert leg() == ONE_TOKEN


def test_nothing_that_shapes_the_answer_reaches_prefill() -> None:
    shaped = leg(
        n=3,
        seed=7,
        stop=["\n"],
        stop_token_ids=[5],
        _all_stop_token_ids=[2, 5],
        _eos_token_id=2,
        output_text_buffer_length=3,
        min_tokens=9,
        logprobs=5,
        prompt_logprobs=1,
        logit_bias={17: 2.5},
        bad_words=["x"],
        allowed_token_ids=[1],
        structured_outputs={"json": "{}"},
        extra_args={"kv_transfer_params": {"a": 1}},
        thinking_token_budget=4,
        max_tokens=500,
    )
    assert shaped == ONE_TOKEN


def test_a_request_that_must_not_read_the_cache_does_not_read_prefills_either() -> None:
    assert leg(skip_reading_prefix_cache=True) == {**ONE_TOKEN, "skip_reading_prefix_cache": True}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_vllm_reads_it_back_as_its_own_sampling_parameters() -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    given = SamplingParams(
        n=3,
        temperature=0.9,
        top_p=0.5,
        seed=3,
        stop=["a", "bcd"],
        stop_token_ids=[4],
        logprobs=2,
        bad_words=["z"],
        logit_bias={3: 1.0},
        allowed_token_ids=[3, 4],
        min_tokens=3,
        max_tokens=50,
        structured_outputs=StructuredOutputsParams(json="{}"),
        extra_args={"x": 1},
    )
    encoded = prefill_sampling(msgspec.msgpack.encode(given))
    read = msgspec.msgpack.decode(encoded, type=SamplingParams)
    expected = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, output_kind=RequestOutputKind.DELTA)
    assert read == expected
