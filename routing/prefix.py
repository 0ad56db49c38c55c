"""How far a prompt's first blocks reach in many places at once: masks in, depths out. Pure functions.

A mask is a set of places, one bit each. A prompt is read as runs of blocks that lie in the same places; there are few
of them, however long it is.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Run(NamedTuple):
    """Blocks up to `end`, from the end of the run before, lie in the places of `mask` and in no other."""

    mask: int
    end: int


class Depth(NamedTuple):
    """The places of `mask` hold the first `blocks` blocks; those of the next depth, fewer, hold more."""

    mask: int
    blocks: int


def depths(known: Sequence[Run], alive: int, widen: Callable[[int], int] | None = None, start: int = 0) -> list[Depth]:
    """How far each of the places `alive` reaches, if it holds the blocks before `start`; a depth of 0 is left out.

    `widen` turns a run's mask into the places that can use its blocks. Behind the last run nothing is held.
    """
    found: list[Depth] = []
    depth = start
    for mask, end in known:
        if end <= start:
            continue
        kept = alive & (widen(mask) if widen else mask)
        if kept != alive:
            if depth:
                found.append(Depth(alive, depth))
            alive = kept
            if not alive:
                return found
        depth = end
    if depth and alive:
        found.append(Depth(alive, depth))
    return found


def apart(reached: Sequence[Depth]) -> list[Depth]:
    """The same, each without the places that the next one has too."""
    found = [Depth(mask & ~deeper.mask, blocks) for (mask, blocks), deeper in pairwise(reached)]
    return [*found, *reached[-1:]]
