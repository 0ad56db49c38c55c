"""Makes a trace of a described workload: the same description, with its seed, gives the same requests.

Prompts share what they share along a tree: each level of a phase's prefixes is chosen below what was chosen above, and
a key follows from all of the choices before it, as a block's key does from the tokens before it. Phases that describe
the same tree share its nodes.
"""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cluster.planning.trace import Trace, TraceRequest
from cluster.planning.trace_keys import keys_of_blocks
from configs.workload import ArrivalsConfig, LengthsConfig, PhaseConfig, PrefixLevelConfig, WorkloadConfig

_OWN = 1 << 40
"""Ids of blocks that no other prompt has begin here: below are those of the tree."""


class _Tree:
    """Numbers the blocks of shared prefixes, each when it is first seen."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, ...], int] = {}
        self._own = _OWN

    def blocks(
        self, levels: Sequence[PrefixLevelConfig], path: tuple[int, ...], size_tokens: int, count: int
    ) -> "array[int]":
        """Ids of the `count` whole blocks of a prompt that took `path` through the tree."""
        ids = array("q")
        ends = np.cumsum([level.tokens for level in levels])
        for number in range(count):
            deepest = int(np.searchsorted(ends, (number + 1) * size_tokens))
            if deepest < len(levels):
                ids.append(self._ids.setdefault((*path[: deepest + 1], -1, number), len(self._ids)))
            else:
                ids.append(self._own)
                self._own += 1
        return ids


def synthesize(workload: WorkloadConfig, block_size_tokens: int = 64) -> Trace:
    """The requests of all phases, in order of arrival, with keys for blocks of `block_size_tokens`."""
    rng = np.random.default_rng(workload.seed)
    tree, requests, start_s = _Tree(), list[TraceRequest](), 0.0
    for phase in workload.phases:
        requests.extend(_requests(phase, start_s, block_size_tokens, tree, rng))
        start_s += phase.duration_s
    return Trace(requests, block_size_tokens)


def _requests(
    phase: PhaseConfig, start_s: float, size_tokens: int, tree: _Tree, rng: Generator
) -> Iterator[TraceRequest]:
    arrivals = start_s + _arrivals(phase.arrivals, phase.duration_s, rng)
    prompts, outputs = _lengths(phase.prompt, len(arrivals), rng), _lengths(phase.output, len(arrivals), rng)
    choices = [_choices(level, len(arrivals), rng) for level in phase.prefixes]
    for number, (arrival_s, prompt, output) in enumerate(zip(arrivals, prompts, outputs, strict=True)):
        path = tuple(int(chosen[number]) for chosen in choices)
        ids = tree.blocks(phase.prefixes, path, size_tokens, int(prompt) // size_tokens)
        yield TraceRequest(float(arrival_s), int(prompt), int(output), keys_of_blocks(ids, 1))


def _arrivals(arrivals: ArrivalsConfig, duration_s: float, rng: Generator) -> NDArray[np.float64]:
    """Times within the phase; its gaps have the mean and the variation that were asked for."""
    mean_s, squared = 1 / arrivals.rate_per_s, arrivals.variation**2
    times = np.zeros(0)
    while not len(times) or times[-1] < duration_s:
        count = max(16, int(1.2 * (duration_s - (times[-1] if len(times) else 0.0)) / mean_s))
        gaps = rng.gamma(1 / squared, mean_s * squared, count) if squared else np.full(count, mean_s)
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + np.cumsum(gaps)])
    return times[times < duration_s]


def _lengths(lengths: LengthsConfig, count: int, rng: Generator) -> NDArray[np.int64]:
    spread = np.log1p(lengths.variation**2)
    drawn = rng.lognormal(np.log(lengths.mean_tokens) - spread / 2, np.sqrt(spread), count)
    return np.clip(np.rint(drawn), lengths.least_tokens, lengths.most_tokens).astype(np.int64)


def _choices(level: PrefixLevelConfig, count: int, rng: Generator) -> NDArray[np.int64]:
    weights = np.arange(1, level.choices + 1, dtype=float) ** -level.skew
    return rng.choice(level.choices, count, p=weights / weights.sum())
