"""How far a prompt's first blocks reach in many places at once: masks in, depths out. Pure functions.

A mask is a set of places, one bit each. A prompt is read as runs of blocks that lie in the same places; there are few
of them, however long it is, so that the work for each block is done by the interpreter's own loops.

Every block is looked at up to the first that lies nowhere: behind a hole nothing counts, and a hole can be anywhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

FIRST_CHUNK_BLOCKS: Final = 16
"""A prompt that is not known should cost little: chunks grow from here."""

MOST_CHUNK_BLOCKS: Final = 128


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks up to `end`, from the end of the run before, lie exactly in the places of `mask`."""

    mask: int
    end: int


@dataclass(frozen=True, slots=True)
class Depth:
    """The places of `mask` hold the first `blocks` blocks, and not the next."""

    mask: int
    blocks: int


def runs(keys: Sequence[int], places: Mapping[int, int], floor: int = 0) -> list[Run]:
    """The runs of a prompt, up to the first block at or behind `floor` that lies nowhere."""
    found: list[Run] = []
    start, size = 0, FIRST_CHUNK_BLOCKS
    while start < len(keys):
        chunk = list(map(places.get, keys[start : start + size], repeat(0)))
        first = chunk[0]
        if first and chunk.count(first) == len(chunk):
            _append(found, first, start + len(chunk))
        elif _append_mixed(found, chunk, start, floor):
            break
        start += len(chunk)
        size = min(2 * size, MOST_CHUNK_BLOCKS)
    return found


def _append(found: list[Run], mask: int, end: int) -> None:
    if found and found[-1].mask == mask:
        found[-1] = Run(mask, end)
    else:
        found.append(Run(mask, end))


def _append_mixed(found: list[Run], chunk: list[int], start: int, floor: int) -> bool:
    """Append the runs of a chunk; whether the prompt's end is reached in it."""
    last = chunk[0]
    for position, mask in enumerate(chunk, start):
        if mask == 0 and position >= floor:
            if position > start:
                _append(found, last, position)
            return True
        if mask is not last:
            _append(found, last, position)
            last = mask
    _append(found, last, start + len(chunk))
    return False


def depths(known: Sequence[Run], alive: int, widen: Callable[[int], int] | None = None, start: int = 0) -> list[Depth]:
    """How far each of the places `alive` reaches, if it holds the blocks before `start`; a depth of 0 is left out.

    `widen` turns a run's mask into the places that can use its blocks.
    """
    found: list[Depth] = []
    depth = start
    for run in known:
        if run.end <= start:
            continue
        kept = alive & (widen(run.mask) if widen else run.mask)
        if kept != alive:
            if depth:
                found.append(Depth(alive ^ kept, depth))
            alive = kept
            if not alive:
                return found
        depth = run.end
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
