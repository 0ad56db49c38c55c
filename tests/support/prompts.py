"""Prompts of exact lengths, cut from text every Python has: its own documentation topics."""

import functools
import pydoc_data.topics
from pathlib import Path

from tokenizers import Tokenizer


@functools.cache
def documentation_tokens(model: str) -> list[int]:
    """Token ids of a long English text under the model's tokenizer."""
    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)[:60])
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def prompt_of(model: str, tokens: int, number: int = 0) -> list[int]:
    """`tokens` token ids; prompts with different numbers share no prefix."""
    text = documentation_tokens(model)
    start = (number * 2003) % (len(text) - tokens)
    return text[start : start + tokens]


def lengths(count: int, shortest: int, longest: int) -> list[int]:
    """`count` lengths spread evenly from shortest to longest."""
    return [shortest + (longest - shortest) * i // (count - 1) for i in range(count)]
