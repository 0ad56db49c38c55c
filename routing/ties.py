"""Choices among equals: who was given work longest ago, then chance.

Costs that differ by less than predictions can tell are equal. Always taking the first of them would pile new prompts up
on one replica of an idle cluster; taking turns spreads them, and what is cached with them, more evenly than chance.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from routing.router import Rng

TOLERANCE = 0.01
"""Costs that differ by less than this share of a time to first token are equal."""


class Priced(Protocol):
    """What has a cost, in seconds."""

    @property
    def cost_s(self) -> float: ...


T = TypeVar("T", bound=Priced)

_cost = attrgetter("cost_s")


def cheapest(priced: Sequence[T], tolerance_s: float, turn: Callable[[T], int], rng: Rng | None) -> list[T]:
    """All, cheapest first; those within `tolerance_s` of the cheapest by `turn` (smallest first), then by chance."""
    ordered = sorted(priced, key=_cost)
    if len(ordered) < 2:
        return ordered
    limit, equals = ordered[0].cost_s + tolerance_s, 1
    while equals < len(ordered) and ordered[equals].cost_s <= limit:
        equals += 1
    if equals > 1:
        draw = rng.random if rng is not None else float
        turns = sorted([(turn(ordered[place]), draw(), place) for place in range(equals)])
        ordered[:equals] = [ordered[place] for _, _, place in turns]
    return ordered
