"""Means and quantiles of plain lists; 0 for empty ones."""

from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of all lie (nearest rank)."""
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
