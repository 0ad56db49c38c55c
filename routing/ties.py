"""Choices among equals: who was given work longest ago, then chance.

Costs that differ by less than predictions can tell are equal. Always taking the first of them would pile new prompts up
on one replica of an idle cluster; taking turns spreads them, and what is cached with them, more evenly than chance.
"""

import numpy as np

from routing.books import Floats
from routing.router import Rng

TOLERANCE = 0.01
"""Costs that differ by less than this share of a time to first token are equal."""


def cheapest(cost_s: Floats, tolerance_s: float, turn: Floats, rng: Rng | None, size: int) -> list[int]:
    """Where the `size` cheapest are, those of infinite cost left out.

    First those within `tolerance_s` of the best, by `turn`, smallest first; equal turns begin anywhere. Then the others
    by cost.
    """
    equal = np.flatnonzero(cost_s <= cost_s.min() + tolerance_s)
    best: list[int] = equal.tolist()
    if len(best) > 1:
        start = int(rng.random() * len(best)) if rng is not None else 0
        turns = turn[equal].tolist()
        places = [*range(start, len(best)), *range(start)]
        places.sort(key=turns.__getitem__)
        best = [best[place] for place in places[:size]]
    if len(best) < size:
        best += [place for place in np.argsort(cost_s).tolist()[len(best) : size] if np.isfinite(cost_s[place])]
    return best
