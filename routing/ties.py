"""Choices among equals: who was given work longest ago, then chance.

Costs that differ by less than predictions can tell are equal. Always taking the first of them would pile new prompts up
on one replica of an idle cluster; taking turns spreads them, and what is cached with them, more evenly than chance.
"""

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import TypeVar

from routing.router import Rng

TOLERANCE = 0.01
"""Costs that differ by less than this share of a time to first token are equal."""

T = TypeVar("T")


def cheapest(
    entries: Sequence[T],
    cost: Callable[[T], float],
    tolerance_s: float,
    turn: Callable[[T], int],
    rng: Rng | None,
    size: int | None = None,
) -> list[T]:
    """The `size` cheapest, or all, in order; those within `tolerance_s` of the best by turn, smallest first, or chance."""
    if not entries:
        return []
    size = len(entries) if size is None else size
    costs = list(map(cost, entries))
    limit = min(costs) + tolerance_s
    equal = [entry for entry, its in zip(entries, costs, strict=True) if its <= limit]
    if len(equal) > 1:
        draw = rng.random if rng is not None else float
        turns = sorted([(turn(entry), draw(), place) for place, entry in enumerate(equal)])
        equal = [equal[place] for _, _, place in turns[:size]]
    if len(equal) < size:
        equal += nsmallest(size - len(equal), [e for e, its in zip(entries, costs, strict=True) if its > limit], cost)
    return equal
