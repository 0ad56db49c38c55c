"""How far a prompt's first blocks reach in many places at once: masks in, depths out. Pure functions.

A mask is a set of places, one bit each. A prompt is read as runs of blocks that lie in the same places; there are few
of them, however long it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """Blocks up to `end`, from the end of the run before, lie in the places of `mask` and in no other."""

    mask: int
    end: int


class Depth(NamedTuple):
    """The places of `mask` hold the first `blocks` blocks, and not the next."""

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
                found.append(Depth(alive ^ kept, depth))
            alive = kept
            if not alive:
                return found
        depth = end
    if depth and alive:
        found.append(Depth(alive, depth))
    return found


def nested_depths(keys: Sequence[int], places: Mapping[int, int], step: int = 16) -> list[Depth]:
    """As `depths`, for places that hold no block without all blocks before it: only every `step`-th is looked at."""
    if not keys or not (alive := places.get(keys[0], 0)):
        return []
    found: list[Depth] = []
    known = 1
    for probe in [*range(step, len(keys) - 1, step), len(keys) - 1]:
        if alive & ~places.get(keys[probe], 0):
            for lost in _lost_between(keys, places, alive, range(known, probe + 1)):
                found.append(lost)
                alive ^= lost.mask
            if not alive:
                return found
        known = probe + 1
    found.append(Depth(alive, len(keys)))
    return found


def _lost_between(keys: Sequence[int], places: Mapping[int, int], alive: int, blocks: range) -> Iterator[Depth]:
    for block in blocks:
        lost = alive & ~places.get(keys[block], 0)
        if lost:
            yield Depth(lost, block)
            alive ^= lost
            if not alive:
                return
