"""Choices among equals: who was given work longest ago, then chance.

Costs that differ by less than predictions can tell are equal. Always taking the first of them would pile new prompts up
on one replica of an idle cluster; taking turns spreads them, and what is cached with them, more evenly than chance.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from routing.books import Floats
from routing.router import Rng

TOLERANCE = 0.01
"""Costs that differ by less than this share of a time to first token are equal."""

_FEW = 48


def cheapest(cost_s: Floats, tolerance_s: float, turn: Floats, rng: Rng | None, size: int) -> list[int]:
    """Where the `size` cheapest are, those of infinite cost left out: `in_order` of these."""
    if len(cost_s) <= max(size, _FEW):
        costs: list[float] = cost_s.tolist()
        best = in_order(costs, tolerance_s, turn.tolist(), rng, size)
        return best if costs[best[-1]] < inf else [place for place in best if costs[place] < inf]
    limit_s = max(cost_s.min() + tolerance_s, np.partition(cost_s, size - 1)[size - 1])
    places = np.flatnonzero(cost_s <= limit_s)
    where: list[int] = places.tolist()
    return [where[place] for place in cheapest(cost_s[places], tolerance_s, turn[places], rng, len(where))[:size]]


def in_order(
    costs_s: Sequence[float], tolerance_s: float, turns: Sequence[float], rng: Rng | None, size: int
) -> list[int]:
    """The `size` best places, the cheapest first.

    Those within `tolerance_s` of the best by turn, smallest first; equal turns begin anywhere.
    """
    limit_s = min(costs_s) + tolerance_s
    equal = [place for place, cost_s in enumerate(costs_s) if cost_s <= limit_s]
    if len(equal) > 1:
        start = int(rng.random() * len(equal)) if rng is not None else 0
        equal = equal[start:] + equal[:start]
        equal.sort(key=turns.__getitem__)
    if len(equal) < min(size, len(costs_s)):
        dearer = [place for place, cost_s in enumerate(costs_s) if cost_s > limit_s]
        dearer.sort(key=costs_s.__getitem__)
        equal += dearer
    return equal[:size]
