"""How a request that lost its replica waits for one, when there is none: it looks again, ever more seldom. Pure."""

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
FORGIVE_AFTER_S = 1.0
"""A replica that failed the request and is still said to be well is tried once more after this: nobody else came."""


class Patience:
    """One request's. `limit_s` bounds each of its waits, which begins with the first `pause_s` after a `reset`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.reset()

    def reset(self) -> None:
        """There was a replica: the next wait begins anew."""
        self._began_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self, now: float) -> float | None:
        """Seconds until it looks again; None when it has waited long enough."""
        if self._began_at is None:
            self._began_at = now
        left_s = self._began_at + self._limit_s - now
        if left_s <= 0:
            return None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return min(pause_s, left_s)

    def forgives(self, now: float) -> bool:
        """Whether a replica that failed may be asked again, though nothing has changed there."""
        return self._began_at is not None and now - self._began_at >= FORGIVE_AFTER_S
