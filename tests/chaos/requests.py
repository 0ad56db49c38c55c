"""The requests of a load, by number: any of them can be made again alone, with the tokens that must answer it.

Two in three prompts begin like those of their family, so that blocks are found again on devices and in stores. One in
four is sampled with a seed. The simulated engine makes its tokens from the bytes of its blocks: a wrong block is seen.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.tokens import BlockFiller, reference_tokens
from cluster.engines.simulated.vocabulary import Vocabulary
from configs.schema import BatonConfig, SimulatedEngineConfig

FAMILIES = 24
FAMILY_LASTS = 400
"""Requests until all families begin anew: old blocks go out of use."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How long things are, in tokens: the largest prompt, and answers from `least_answer` to `most_answer`."""

    most_prompt: int = 500
    least_answer: int = 30
    most_answer: int = 90


@dataclass(frozen=True, slots=True)
class Request:
    """One completion. `leave_after_s`: its client hangs up then."""

    number: int
    prompt: list[int]
    tokens: int
    seed: int | None
    leave_after_s: float | None

    def body(self, model: str) -> bytes:
        """As it is sent."""
        sampling = {"temperature": 0.0} if self.seed is None else {"temperature": 1.0, "seed": self.seed}
        asked = {"model": model, "prompt": self.prompt, "max_tokens": self.tokens, "ignore_eos": True, **sampling}
        return json.dumps({**asked, "stream": True, "return_token_ids": True}).encode()


class Requests:
    """All of one seed. `leaving` is the share of clients that hang up, at any moment within `leave_within_s`."""

    def __init__(self, seed: int, shape: Shape, leaving: float = 0.1, leave_within_s: float = 5.0) -> None:
        self._seed = seed
        self._shape = shape
        self._leaving = leaving
        self._leave_within_s = leave_within_s

    def __getitem__(self, number: int) -> Request:
        rng = random.Random(f"{self._seed} {number}")
        prompt = self._family(number, rng) if rng.random() < 2 / 3 else []
        prompt = prompt + _tokens(rng, rng.randint(1, self._shape.most_prompt - len(prompt)))
        tokens = rng.randint(self._shape.least_answer, self._shape.most_answer)
        seed = rng.randrange(2**31) if rng.random() < 0.25 else None
        leaves = rng.random() < self._leaving
        return Request(number, prompt, tokens, seed, rng.uniform(0, self._leave_within_s) if leaves else None)

    def _family(self, number: int, rng: random.Random) -> list[int]:
        family = random.Random(f"{self._seed} family {rng.randrange(FAMILIES)} {number // FAMILY_LASTS}")
        return _tokens(family, family.randint(1, self._shape.most_prompt // 2))


class References:
    """The tokens that answer a request, computed without engine, block table or store."""

    def __init__(self, config: BatonConfig, model_path: Path) -> None:
        engine = config.decode.engine
        assert isinstance(engine, SimulatedEngineConfig), "only simulated engines have a reference"
        self._block_size = engine.block_size
        self._filler = BlockFiller(engine.block_size * engine.kv_bytes_per_token)
        self._candidates = Vocabulary.load(model_path).candidates

    def of(self, request: Request) -> list[int]:
        """All of them."""
        sampling = Sampling(
            temperature=0.0 if request.seed is None else 1.0, seed=request.seed, max_tokens=request.tokens
        )
        return reference_tokens(
            request.prompt, sampling, request.tokens, self._filler, self._candidates, self._block_size
        )


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(300, 1500) for _ in range(count)]
