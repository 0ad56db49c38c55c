"""Which points are measured on an engine, given what it can hold. Pure.

Lengths go from an eighth of a step's tokens, where the fixed part of a step shows, to many steps, where attention does;
batches and contexts as far as the device holds them. `work_tokens` says roughly how long a point takes beside others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

DECODE_STEPS: Final = 12
"""Steps of which a decode point is the median."""

SHARE: Final = 0.8
"""Of the device's blocks that a batch may take: blocks that are half full are blocks."""

MOST_CONTEXT_CHUNKS: Final = 80
"""A batch has at most so many steps' worth of context: all of it has to be computed before."""

STEP_WORK_TOKENS: Final = 24
"""A decode step takes about as long as computing so many tokens of prompts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine takes."""

    chunk_tokens: int
    max_running: int
    max_model_len: int
    kv_tokens: int
    block_size_tokens: int


@dataclass(frozen=True, slots=True)
class PromptTask:
    """`prompts` new prompts of `tokens` each, at once."""

    prompts: int
    tokens: int

    def __str__(self) -> str:
        return f"prefill, {self.prompts} × {self.tokens:,} tokens"

    @property
    def work_tokens(self) -> int:
        return self.prompts * self.tokens


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Steps of `requests` requests whose prompts have `context_tokens` each."""

    requests: int
    context_tokens: int

    def __str__(self) -> str:
        return f"decode, {self.requests} × {self.context_tokens:,} tokens"

    @property
    def work_tokens(self) -> int:
        return DECODE_STEPS * STEP_WORK_TOKENS + self.requests * self.context_tokens // 4


@dataclass(frozen=True, slots=True)
class MoveTask:
    """Whole blocks of `tokens` tokens go from the store to the device, and from store to store."""

    tokens: int

    def __str__(self) -> str:
        return f"load and transfer, {self.tokens:,} tokens"

    @property
    def work_tokens(self) -> int:
        return self.tokens + 4 * STEP_WORK_TOKENS


Task = PromptTask | DecodeTask | MoveTask


def schedule(limits: Limits, quick: bool) -> Sequence[Task]:
    """One round, in its order."""
    return [*_prompts(limits, quick), *_decodes(limits, quick), *_moves(limits)]


def context_tokens(tasks: Iterable[Task]) -> int:
    """The longest context that decode tasks have."""
    return max(task.context_tokens for task in tasks if isinstance(task, DecodeTask))


def _prompts(limits: Limits, quick: bool) -> list[PromptTask]:
    chunk = limits.chunk_tokens
    shares = (1 / 8, 1 / 2, 1, 4) if quick else (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
    lengths = sorted({min(max(int(share * chunk), 1), _longest(limits)) for share in shares})
    batches = [(4, chunk // 2)] if quick else [(4, chunk // 2), (3, 2 * chunk)]
    together = [PromptTask(n, tokens) for n, tokens in batches if n * tokens <= _longest(limits)]
    return [*(PromptTask(1, tokens) for tokens in lengths), *together]


def _decodes(limits: Limits, quick: bool) -> list[DecodeTask]:
    contexts = (128, 1_024) if quick else (128, 512, 2_048)
    sizes = [size for size in ((1, 4, 16) if quick else (1, 2, 4, 8, 16, 32, 64)) if size <= limits.max_running]
    room = min(SHARE * limits.kv_tokens, MOST_CONTEXT_CHUNKS * limits.chunk_tokens)
    most = min(_longest(limits), limits.max_model_len - 2 * DECODE_STEPS)
    lengths = sorted({min(context, most) for context in contexts})
    return [DecodeTask(n, each) for each in lengths for n in sizes if n * (each + 2 * DECODE_STEPS) <= room]


def _moves(limits: Limits) -> list[MoveTask]:
    size = limits.block_size_tokens
    longest = min(_longest(limits), 8 * limits.chunk_tokens) // size
    return [MoveTask(blocks * size) for blocks in sorted({max(1, longest // 8), max(1, longest // 3), longest})]


def _longest(limits: Limits) -> int:
    """A prompt, with room for the token that follows it."""
    return min(limits.max_model_len - 2, int(SHARE * limits.kv_tokens))
