"""Figures with their spread: the median over rounds and the least and greatest of them."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of `n` rounds, and the range they span."""

    median: float
    least: float
    greatest: float
    n: int

    def __str__(self) -> str:
        return f"{show(self.median)} ({show(self.least)}–{show(self.greatest)})"


def spread(rounds: Sequence[float]) -> Spread:
    """Over at least one round."""
    return Spread(statistics.median(rounds), min(rounds), max(rounds), len(rounds))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours over theirs, round by round: what was slow for both in one round does not show."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def show(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
