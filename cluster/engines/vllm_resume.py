"""How vLLM goes on with an output that another engine began. Two ways, both exact:

- *Continuing*: the emitted tokens are more prompt, computed or loaded at prefill's speed. What counts outputs is told
  the rest; text and stop strings are ours to make, over all tokens, with vLLM's own detokeniser.
- *Replaying*: the emitted tokens are sampled once more, a step each, because something in the engine depends on each
  of them: a seeded generator, a grammar, a penalty. What comes of it before the seam is dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm import SamplingParams
from vllm.sampling_params import SamplingType

from cluster.dataplane.frames import Emitted
from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_replay import REPLAY
from cluster.engines.vllm_seam import Seam, Text
from cluster.errors import CannotContinue


@dataclass(frozen=True, slots=True)
class Begun:
    """What vLLM is asked. Where an output goes on, `seam` makes what is new to the client of the answer."""

    prompt: Sequence[int]
    sampling: SamplingParams
    seam: Seam | None = None


@dataclass(frozen=True, slots=True)
class Means:
    """What an engine has for going on: how many tokens it replays at most, and whether a seed needs that.

    vLLM's first model runner draws from a generator that advances with each token, its second by seed and position.
    """

    replay_tokens: int
    seeds_by_position: bool


def resume(request: EngineRequest, emitted: Emitted, sampling: SamplingParams, tokenizer: Any, means: Means) -> Begun:
    """Choose the way. `sampling` is the request's own copy. Raises `CannotContinue` where the means do not suffice."""
    sampling.prompt_logprobs = sampling.prompt_logprob_token_ids = None
    if sampling.n > 1:
        sampling.n = 1
        sampling.seed = None if sampling.seed is None else sampling.seed + emitted.index  # as vLLM seeds its outputs
    if not emitted.token_ids or not _depends_on_each_token(sampling, means):
        return _continued(request, emitted, sampling, tokenizer)
    if len(emitted.token_ids) > means.replay_tokens:
        raise CannotContinue(
            f"the answer's worker was lost after {len(emitted.token_ids)} tokens, which its seed, penalties or grammar"
            f" would have sampled again one by one; at most {means.replay_tokens} are (replay_tokens)"
        )
    sampling.extra_args = {**(sampling.extra_args or {}), REPLAY: emitted.token_ids}
    return Begun(request.token_ids, sampling, Seam.of_replayed(emitted))


def _depends_on_each_token(sampling: SamplingParams, means: Means) -> bool:
    """Whether the engine keeps a state that changes with every token, which a prompt does not set."""
    return bool(
        (sampling.sampling_type == SamplingType.RANDOM_SEED and not means.seeds_by_position)
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.structured_outputs is not None
        or sampling.bad_words
        or sampling.thinking_token_budget is not None
        or sampling.repetition_detection is not None
    )


def _continued(request: EngineRequest, emitted: Emitted, sampling: SamplingParams, tokenizer: Any) -> Begun:
    text = Text(tokenizer, request.token_ids, sampling.clone(), emitted.token_ids) if sampling.detokenize else None
    made = len(emitted.token_ids)
    if sampling.max_tokens is not None:
        sampling.max_tokens -= made
    sampling.min_tokens = max(0, sampling.min_tokens - made)
    sampling.stop = []
    sampling.output_text_buffer_length = 0
    return Begun(request.known_tokens, sampling, Seam.of_continued(emitted, text))
