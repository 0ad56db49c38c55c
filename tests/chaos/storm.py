"""Faults at a steady pace while a load runs, each followed by what became of the streams."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos import memory
from tests.chaos.faults import CATALOGUE
from tests.chaos.load import Load
from tests.chaos.parts import Parts

MEASURE_EVERY = 6
"""Faults after which memory is looked at."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` of faults, every `every_s` as many as `at_once`, drawn from these by the seed; all of them come equally
    often. What strikes together is done together: the one's victims are not there when the other's need them.
    """

    seed: int
    seconds: float
    every_s: float
    faults: Sequence[str]
    at_once: int = 1

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Names: a shuffled round of all of them, then another."""
        rng = random.Random(self.seed)
        rounds = (rng.sample(list(self.faults), len(self.faults)) for _ in itertools.count())
        names = itertools.chain.from_iterable(rounds)
        return (tuple(itertools.islice(names, self.at_once)) for _ in range(int(self.seconds / self.every_s)))


async def storm(plan: Plan, parts: Parts, load: Load, say: Callable[[str], None]) -> None:
    """Strike, and tell after each interval what ended in it."""
    rng, clock = random.Random(plan.seed), asyncio.get_running_loop().time
    began_at = clock()
    for number, names in enumerate(plan):
        await asyncio.sleep(began_at + number * plan.every_s - clock())
        strikes = [asyncio.to_thread(CATALOGUE[name].strike, parts, random.Random(rng.random())) for name in names]
        said = ", ".join(await asyncio.gather(*strikes))
        at_s = clock() - began_at
        await asyncio.sleep(began_at + (number + 1) * plan.every_s - clock())
        say(f"{at_s:6.1f} s  {said:55}  {load.cut()}")
        if not (number + 1) % MEASURE_EVERY:
            say(f"          {memory.line(await asyncio.to_thread(memory.taken, parts))}")
