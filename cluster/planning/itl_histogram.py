"""Times between tokens, millions of them, in bins of half a percent."""

import math
from collections import Counter

_WIDTH = math.log(1.005)


class ItlHistogram:
    """Counts by bin; a quantile is off by at most half a bin."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float, count: int) -> None:
        """`count` tokens came `seconds` after the one before. Steps taken together count with their mean."""
        self._bins[round(math.log(seconds) / _WIDTH)] += count

    def quantile(self, share: float) -> float:
        """The least time that `share` of all do not exceed; 0 when there are none."""
        left = share * self._bins.total()
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                return math.exp(number * _WIDTH)
        return 0.0
