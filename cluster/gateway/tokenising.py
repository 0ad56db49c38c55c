"""Prompts to token ids, at the price of the ids alone.

vLLM asks the tokenizer for a whole encoding: where each token lies in the text, masks, types. A gateway needs none of
it, and without the places the Rust tokenizer takes a quarter less time for the same ids. What the ids alone do not
answer (offsets, a truncation of the request's own, a tokenizer with code of its own) goes vLLM's way.

Short prompts are tokenised where they are, because a thread's two switches cost more; long ones in vLLM's thread, and
very long ones in a lane of their own, where they make nobody wait. Invariant: the tokenizer is not changed after it
was made, so that any number of threads may read it.
"""

import copy
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from transformers import PreTrainedTokenizerBase, TokenizersBackend
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy
from vllm.tokenizers.hf import ThreadSafeHFTokenizerMixin
from vllm.utils.async_utils import make_async

AT_ONCE_CHARS = 1024  # 0.2 ms of plain words, 1 ms of what tokenises worst
LONG_CHARS = 128 * 1024  # about 30 ms


class PromptTokenizer:
    """Takes the place of the tokenising step of one of vLLM's renderers."""

    def __init__(self, renderer: Any, original: TokenizersBackend) -> None:
        self._renderer = renderer
        self._slow = renderer._tokenize_prompt
        self._max_length = renderer.default_cmpl_tok_params.get_encode_kwargs()["max_length"]
        self._tokenizer = _ready_to_read(original, self._max_length)
        self._in_thread = self._on(renderer._executor)
        lane = ThreadPoolExecutor(1, "long-prompts")
        renderer._resources.callback(lane.shutdown, wait=False)
        self._in_lane = self._on(lane)

    def tokenize(self, prompt: Any, params: Any) -> Any:
        """vLLM's `TextPrompt` to its `TokensPrompt`. Blocks."""
        wanted = params.get_encode_kwargs()
        if wanted.get("max_length") != self._max_length or self._renderer._wants_offsets(prompt, params):
            return self._slow(prompt, params)
        text, special = prompt["prompt"], wanted["add_special_tokens"]
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0]
        return self._renderer._build_tokens_prompt(encoding.ids, prompt)

    async def tokenize_async(self, prompt: Any, params: Any) -> Any:
        """The same without blocking for longer than a short prompt takes."""
        length = len(prompt["prompt"])
        if length <= AT_ONCE_CHARS:
            return self.tokenize(prompt, params)
        return await (self._in_thread if length <= LONG_CHARS else self._in_lane)(prompt, params)

    def _on(self, executor: Executor) -> Any:
        return make_async(self.tokenize, executor=executor)


def install(renderer: Any) -> None:
    """Let `renderer` tokenise this way if its tokenizer is one that can; it has not been used yet."""
    eos = renderer.get_eos_token_id()
    renderer.get_eos_token_id = lambda: eos  # looked up in the vocabulary for every request
    original = _original(renderer.tokenizer)
    if original is None:
        return
    ours = PromptTokenizer(renderer, original)
    renderer._tokenize_prompt = ours.tokenize
    renderer._tokenize_prompt_async = ours.tokenize_async


def _original(tokenizer: Any) -> TokenizersBackend | None:
    """What vLLM's pool of tokenizers was made from, if it tokenises as the library does and not in a way of its own."""
    if not isinstance(tokenizer, ThreadSafeHFTokenizerMixin):
        return None
    _, (original, _copies) = tokenizer.__reduce__()
    kind = type(original)
    as_the_library = (
        kind.__call__ is PreTrainedTokenizerBase.__call__ and kind._encode_plus is TokenizersBackend._encode_plus
    )
    return original if as_the_library else None


def _ready_to_read(original: TokenizersBackend, max_length: int) -> Any:
    """The Rust tokenizer, set once as `TokenizersBackend` sets it before each encoding."""
    copied = copy.deepcopy(original)
    copied.set_truncation_and_padding(
        padding_strategy=PaddingStrategy.DO_NOT_PAD,
        truncation_strategy=TruncationStrategy.LONGEST_FIRST,
        max_length=max_length,
        stride=0,
        pad_to_multiple_of=None,
        padding_side=None,
    )
    copied._tokenizer.encode_special_tokens = copied.split_special_tokens
    return copied._tokenizer
