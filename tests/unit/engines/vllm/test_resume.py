"""Which way vLLM goes on with an output, and what it is asked then."""

from typing import Any

import pytest
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from cluster.dataplane.frames import Emitted
from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_replay import REPLAY
from cluster.engines.vllm_resume import Begun, Means, resume
from cluster.errors import CannotContinue

EMITTED = Emitted(2, [7, 8, 9], 5)
FIRST_RUNNER = Means(replay_tokens=3, seeds_by_position=False)
SECOND_RUNNER = Means(replay_tokens=0, seeds_by_position=True)


def begun(means: Means = FIRST_RUNNER, emitted: Emitted = EMITTED, **fields: Any) -> Begun:
    request = EngineRequest("r", [1, 2], b"", emitted=emitted)
    return resume(request, emitted, SamplingParams(**{"detokenize": False, **fields}), None, means)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "seed": 1},
        {"temperature": 0.7, "top_p": 0.9},
        {"repetition_penalty": 1.2},
        {"min_tokens": 5},
        {"logprobs": 3},
    ],
    ids=str,
)
def test_the_tokens_are_more_prompt_where_nothing_depends_on_each(fields: dict[str, Any]) -> None:
    asked = begun(max_tokens=20, **fields)
    assert (asked.prompt, asked.sampling.max_tokens) == ([1, 2, 7, 8, 9], 17)
    assert asked.sampling.min_tokens == max(0, fields.get("min_tokens", 0) - 3)
    assert REPLAY not in (asked.sampling.extra_args or {})


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"structured_outputs": StructuredOutputsParams(regex="[0-9]*")},
        {"bad_words": ["no"]},
        {"thinking_token_budget": 10},
    ],
    ids=str,
)
def test_they_are_replayed_where_something_does(fields: dict[str, Any]) -> None:
    asked = begun(max_tokens=20, min_tokens=4, stop_token_ids=[3], extra_args={"a": 1}, **fields)
    assert (asked.prompt, asked.sampling.max_tokens, asked.sampling.min_tokens) == ([1, 2], 20, 4)
    assert asked.sampling.extra_args == {"a": 1, REPLAY: [7, 8, 9]}


def test_a_seed_needs_no_replay_where_draws_follow_from_it_and_the_position() -> None:
    assert begun(SECOND_RUNNER, seed=1).prompt == [1, 2, 7, 8, 9]


def test_what_needs_a_longer_replay_than_the_engine_makes_cannot_go_on() -> None:
    with pytest.raises(CannotContinue, match=r"after 4 tokens.*at most 3"):
        begun(emitted=Emitted(0, [7, 8, 9, 10]), seed=1)
    with pytest.raises(CannotContinue, match="at most 0"):
        begun(SECOND_RUNNER, presence_penalty=0.5)


def test_one_of_several_outputs_is_asked_for_alone_with_its_own_seed() -> None:
    asked = begun(n=3, seed=5, prompt_logprobs=2)
    assert (asked.sampling.n, asked.sampling.seed, asked.sampling.prompt_logprobs) == (1, 7, None)
    assert begun(n=1, seed=5).sampling.seed == 5


def test_an_output_without_tokens_begins() -> None:
    assert begun(emitted=Emitted(0, []), seed=1).prompt == [1, 2]
