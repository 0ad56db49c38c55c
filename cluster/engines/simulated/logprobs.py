"""Plausible log-probabilities: deterministic, sorted by rank, and summing to less than one."""

import math
from collections.abc import Sequence
from itertools import islice

from cluster.dataplane.frames import PositionLogprobs, TokenLogprob
from cluster.engines.simulated.vocabulary import Vocabulary


def position(vocabulary: Vocabulary, token_id: int, number: int, count: int) -> PositionLogprobs:
    """The token that stands at a position, ranked first, and the next likely ones: `count` entries, at least one."""
    return of_tokens(vocabulary, token_id, number, _rivals(vocabulary.candidates, token_id, number, count - 1))


def of_tokens(vocabulary: Vocabulary, token_id: int, number: int, others: Sequence[int]) -> PositionLogprobs:
    """The token that stands at a position, ranked first, and these, in their order."""
    first = 0.5 + (number >> 32) % 1000 / 2500  # 0.5 to 0.9
    rivals = [other for other in dict.fromkeys(others) if other != token_id]
    chances = [first, *((1 - first) / 2 ** (rank + 1) for rank in range(len(rivals)))]
    return [
        TokenLogprob(token, math.log(chance), rank, vocabulary.text(token))
        for rank, (token, chance) in enumerate(zip([token_id, *rivals], chances, strict=True), start=1)
    ]


def of_prompt(vocabulary: Vocabulary, prompt: Sequence[int], count: int) -> list[PositionLogprobs | None]:
    """One entry for each prompt token; None for the first, which nothing predicts."""
    numbers = ((token << 33) ^ (index << 32) for index, token in enumerate(prompt))
    entries = [position(vocabulary, token, number, count) for token, number in zip(prompt, numbers, strict=True)]
    return [None, *entries[1:]]


def _rivals(candidates: Sequence[int], token_id: int, number: int, count: int) -> list[int]:
    start = number % len(candidates)
    around = (candidates[(start + step) % len(candidates)] for step in range(1, len(candidates)))
    return list(islice((token for token in around if token != token_id), count))
