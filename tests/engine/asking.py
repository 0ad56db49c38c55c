"""Asking one engine, outside the contract suite's pair."""

import asyncio
import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

from cluster.engines.engine import Engine, EngineRequest
from cluster.models.tiny import VOCABULARY
from tests.contracts.engine_pair import Answer, sampling

DEADLINE_S = 60.0
_numbers = itertools.count()


def new_prompt(tokens: int) -> list[int]:
    """One that no test of this folder has used."""
    random = Random(1000 + next(_numbers))
    return [random.randrange(300, VOCABULARY) for _ in range(tokens)]


async def ask(engine: Engine, prompt: Sequence[int], *, max_tokens: int = 8, **fields: Any) -> Answer:
    request = EngineRequest(f"engine-test-{next(_numbers)}", prompt, sampling(max_tokens=max_tokens), **fields)
    async with asyncio.timeout(DEADLINE_S):
        return Answer([delta async for delta in engine.generate(request)])


async def crowd_out(engine: Engine, tokens: int) -> None:
    """Fill the device with other blocks, so that nothing earlier is cached there."""
    for _ in range(tokens // 1500 + 1):
        await ask(engine, new_prompt(1500), max_tokens=1)
