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
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from cluster.dataplane.frames import Delta, Emitted
from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_replay import REPLAY
from cluster.errors import CannotContinue


@dataclass(frozen=True, slots=True)
class Begun:
    """What vLLM is asked. Where an output goes on, `seam` makes what is new to the client of the answer."""

    prompt: Sequence[int]
    sampling: SamplingParams
    seam: "Seam | None" = None


class Seam:
    """Where the deltas of one output go on."""

    def __init__(self, emitted: Emitted, tokens: int, detokenizer: IncrementalDetokenizer | None) -> None:
        self._index = emitted.index
        self._tokens_left = tokens  # that come once more
        self._chars_left = emitted.text_chars
        self._cumulative_logprob = 0.0 if tokens else emitted.cumulative_logprob or 0.0
        self._detokenizer = detokenizer

    def pass_on(self, delta: Delta) -> Delta | None:
        """What of it is new; None when nothing is."""
        delta.index = self._index
        if self._detokenizer is not None:
            _detokenise(delta, self._detokenizer)
        if delta.cumulative_logprob is not None:
            delta.cumulative_logprob += self._cumulative_logprob
        self._cut(delta)
        return delta if delta.token_ids or delta.finish_reason is not None else None

    def _cut(self, delta: Delta) -> None:
        tokens, chars = min(self._tokens_left, len(delta.token_ids)), min(self._chars_left, len(delta.text))
        self._tokens_left -= tokens
        self._chars_left -= chars
        delta.token_ids, delta.text = delta.token_ids[tokens:], delta.text[chars:]
        if delta.logprobs is not None:
            delta.logprobs = delta.logprobs[tokens:]


def resume(request: EngineRequest, emitted: Emitted, sampling: SamplingParams, tokenizer: Any, most: int) -> Begun:
    """Choose the way. `sampling` is the request's own copy, `most` the tokens that may be replayed.

    Raises `CannotContinue` for more.
    """
    sampling.prompt_logprobs = sampling.prompt_logprob_token_ids = None
    if sampling.n > 1:
        sampling.n = 1
        sampling.seed = None if sampling.seed is None else sampling.seed + emitted.index  # as vLLM seeds its outputs
    if not emitted.token_ids or not _depends_on_each_token(sampling):
        return _continued(request, emitted, sampling, tokenizer)
    if len(emitted.token_ids) > most:
        raise CannotContinue(
            f"the answer's worker was lost after {len(emitted.token_ids)} tokens, which its seed, penalties or grammar"
            f" would have sampled again one by one; at most {most} are (replay_tokens)"
        )
    sampling.extra_args = {**(sampling.extra_args or {}), REPLAY: emitted.token_ids}
    return Begun(request.token_ids, sampling, Seam(emitted, len(emitted.token_ids), None))


def _depends_on_each_token(sampling: SamplingParams) -> bool:
    """Whether the engine keeps a state that changes with every token, which a prompt does not set."""
    return bool(
        sampling.sampling_type == SamplingType.RANDOM_SEED
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.structured_outputs is not None
        or sampling.bad_words
        or sampling.thinking_token_budget is not None
        or sampling.repetition_detection is not None
    )


def _continued(request: EngineRequest, emitted: Emitted, sampling: SamplingParams, tokenizer: Any) -> Begun:
    detokenizer = _detokenizer(request, emitted, sampling.clone(), tokenizer) if sampling.detokenize else None
    made = len(emitted.token_ids)
    if sampling.max_tokens is not None:
        sampling.max_tokens -= made
    sampling.min_tokens = max(0, sampling.min_tokens - made)
    sampling.stop = []
    sampling.output_text_buffer_length = 0
    return Begun(request.known_tokens, sampling, Seam(emitted, 0, detokenizer))


def _detokenizer(
    request: EngineRequest, emitted: Emitted, sampling: SamplingParams, tokenizer: Any
) -> IncrementalDetokenizer:
    """vLLM's own, as it was after the emitted tokens, with nothing of their text handed out."""
    core = EngineCoreRequest(
        request_id=request.request_id,
        prompt_token_ids=list(request.token_ids),
        mm_features=None,
        sampling_params=sampling,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, core)
    for token_id in emitted.token_ids:
        detokenizer.update([token_id], False)
    return detokenizer


def _detokenise(delta: Delta, detokenizer: IncrementalDetokenizer) -> None:
    """Give the delta its text, and end it where a stop string is complete."""
    last = len(delta.token_ids)
    for count, token_id in enumerate(delta.token_ids, start=1):
        stop = detokenizer.update([token_id], delta.finish_reason == "stop" and count == last)
        if stop is not None:
            _end(delta, count, stop)
            break
    delta.text = detokenizer.get_next_output_text(delta.finish_reason is not None, True)


def _end(delta: Delta, tokens: int, stop: str) -> None:
    del delta.token_ids[tokens:]
    if delta.logprobs is not None:
        dropped = delta.logprobs[tokens:]
        del delta.logprobs[tokens:]
        assert delta.cumulative_logprob is not None
        delta.cumulative_logprob -= sum(position[0].logprob for position in dropped)
    delta.finish_reason, delta.stop_reason = "stop", stop
