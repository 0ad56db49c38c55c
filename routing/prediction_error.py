"""How well predictions come true: |observed - predicted| / observed over the latest requests."""

from collections import deque
from statistics import median


class PredictionError:
    """Remembers the latest `window` errors."""

    def __init__(self, window: int = 256) -> None:
        self._errors: deque[float] = deque(maxlen=window)

    def observe(self, predicted_s: float, actual_s: float) -> None:
        """A prediction, and what came of it. Nothing that took no time is counted."""
        if actual_s > 0:
            self._errors.append(abs(actual_s - predicted_s) / actual_s)

    @property
    def median(self) -> float | None:
        """The median error as a fraction; None before anything was observed."""
        return median(self._errors) if self._errors else None
