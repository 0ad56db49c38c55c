"""What every side of the store benchmark moves: scattered blocks from one process's memory into another's.

Standard library and numpy only: the rivals' environment reads it too.
"""

import mmap
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

PEER_DEADLINE_S = 60.0
TRIES = 5

Way = TypeVar("Way")


@dataclass(frozen=True, slots=True)
class Case:
    """`blocks` of the `pool` blocks that each side's memory holds are moved at once."""

    block_bytes: int
    blocks: int
    pool: int

    @property
    def moved_bytes(self) -> int:
        return self.block_bytes * self.blocks

    def plan(self, number: int) -> tuple[Places, Places]:
        """Which blocks go where in round `number`; the same on every side."""
        rng = np.random.default_rng(number)
        return tuple(rng.permutation(self.pool)[: self.blocks].astype(np.int64) for _ in range(2))  # type: ignore[return-value]

    def content(self, place: int) -> Bytes:
        """What the source holds there."""
        words = self.block_bytes // 8
        return (np.arange(words, dtype=np.uint64) + np.uint64(place * words)).view(np.uint8)


CASES = {
    "64 KiB": Case(64 << 10, 512, 2048),
    "2 MiB": Case(2 << 20, 128, 192),
}


def memory(case: Case, filled: bool) -> Bytes:
    """A process's blocks, resident."""
    array = np.frombuffer(mmap.mmap(-1, case.block_bytes * case.pool), np.uint8)
    if filled:
        array.view(np.uint64)[:] = np.arange(array.size // 8, dtype=np.uint64)
    else:
        array[:] = 1
    return array


def check(case: Case, target: Bytes, sources: Places, targets: Places) -> None:
    """Some of the blocks are there."""
    blocks = target.reshape(-1, case.block_bytes)
    for source, place in list(zip(sources.tolist(), targets.tolist(), strict=True))[:: max(1, case.blocks // 16)]:
        if not np.array_equal(blocks[place], case.content(source)):
            raise RuntimeError(f"block {source} did not arrive at {place}")


def fastest(ways: Sequence[Way], move: Callable[[Way], float]) -> Way:
    """The way with the best median of some moves: chosen beforehand, so that a round has one try on every side."""
    return min(ways, key=lambda way: statistics.median(move(way) for _ in range(TRIES)))


class Peer:
    """The other process of a side: a function that answers what it is told over a pipe, until it is told None."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(work, theirs, arguments), daemon=True)
        self._process.start()

    def hear(self) -> Any:
        """Its next word. Raises TimeoutError."""
        if not self.pipe.poll(PEER_DEADLINE_S):
            raise TimeoutError("the other process says nothing")
        return self.pipe.recv()

    def ask(self, word: Any) -> Any:
        """Its answer."""
        self.pipe.send(word)
        return self.hear()

    def stop(self) -> None:
        """End it."""
        self.pipe.send(None)
        self._process.join(2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _run(work: Callable[..., None], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    work(pipe, *arguments)
    os._exit(0)
