"""What of vLLM's answer is new to a client that has had the first part of it, and the text of the second.

Text is made over all tokens by vLLM's own detokeniser: what was held back for a stop string, and a character whose
bytes lie on both sides of the seam, come out as they would have.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from vllm import SamplingParams
from vllm.tokenizers.detokenizer_utils import convert_ids_list_to_tokens
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.engine.logprobs import LogprobsProcessor

from cluster.dataplane.frames import Delta, Emitted, PositionLogprobs

CONTEXT_TOKENS = 4
"""A token's own text may depend on as many before it: no character is longer than four bytes."""


class Text:
    """The text of one output, of which another engine made the first tokens."""

    def __init__(
        self, tokenizer: Any, prompt: Sequence[int], sampling: SamplingParams, token_ids: Sequence[int]
    ) -> None:
        core = EngineCoreRequest(
            request_id="",
            prompt_token_ids=list(prompt),
            mm_features=None,
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, core)
        self._logprobs = LogprobsProcessor.from_new_request(tokenizer, core)
        self._context = list(token_ids[-CONTEXT_TOKENS:])
        self._positions_left = CONTEXT_TOKENS  # whose context the engine does not know whole
        for token_id in token_ids:
            self._detokenizer.update([token_id], False)

    def add(self, delta: Delta) -> None:
        """Give the delta its text, and end it where a stop string is complete."""
        last = len(delta.token_ids)
        for count, token_id in enumerate(delta.token_ids, start=1):
            stop = self._detokenizer.update([token_id], delta.finish_reason == "stop" and count == last)
            if stop is not None:
                _end(delta, count, stop)
                break
        if delta.logprobs is not None:
            delta.logprobs = [self._decoded(position) for position in delta.logprobs]
        delta.text = self._detokenizer.get_next_output_text(delta.finish_reason is not None, True)

    def _decoded(self, position: PositionLogprobs) -> PositionLogprobs:
        """The candidates as they read after the tokens before them, as vLLM reads them."""
        if self._positions_left:
            self._positions_left -= 1
            ids = [candidate.token_id for candidate in position]
            alone = convert_ids_list_to_tokens(self._tokenizer, ids)
            texts = self._logprobs._verify_tokens(alone, ids, self._context)
            self._context = [*self._context, ids[0]][-CONTEXT_TOKENS:]
            position = [msgspec.structs.replace(c, decoded=text) for c, text in zip(position, texts, strict=True)]
        return position


class Seam:
    """Where the deltas of one output go on."""

    def __init__(self, emitted: Emitted, tokens_again: int, cumulative_logprob: float, text: Text | None) -> None:
        self._index = emitted.index
        self._tokens_left = tokens_again
        self._chars_left = emitted.text_chars
        self._cumulative_logprob = cumulative_logprob
        self._text = text

    @classmethod
    def of_continued(cls, emitted: Emitted, text: Text | None) -> "Seam":
        """The engine makes tokens after the emitted ones; `text` makes their text, unless there is to be none."""
        return cls(emitted, 0, emitted.cumulative_logprob or 0.0, text)

    @classmethod
    def of_replayed(cls, emitted: Emitted) -> "Seam":
        """The engine makes all tokens, and their text."""
        return cls(emitted, len(emitted.token_ids), 0.0, None)

    def pass_on(self, delta: Delta) -> Delta | None:
        """What of it is new; None when nothing is."""
        delta.index = self._index
        if self._text is not None:
            self._text.add(delta)
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


def _end(delta: Delta, tokens: int, stop: str) -> None:
    del delta.token_ids[tokens:]
    if delta.logprobs is not None:
        dropped = delta.logprobs[tokens:]
        del delta.logprobs[tokens:]
        assert delta.cumulative_logprob is not None
        delta.cumulative_logprob -= sum(position[0].logprob for position in dropped)
    delta.finish_reason, delta.stop_reason = "stop", stop
