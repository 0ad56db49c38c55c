"""Prompts of a known number of tokens: varied common words, sized with the model's own tokenizer."""

import random
from pathlib import Path

from tokenizers import Tokenizer

_COMMON = (
    "the of and to in is that it for was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know"
)


def prompt_of(tokens: int, model: str, seed: int = 0) -> str:
    """Text that the model's tokenizer turns into `tokens` tokens, give or take one."""
    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    rng = random.Random(seed)
    common = _COMMON.split()
    words = [rng.choice(common) for _ in range(tokens)]
    ids = tokenizer.encode(" ".join(words), add_special_tokens=False).ids[:tokens]
    return str(tokenizer.decode(ids))
