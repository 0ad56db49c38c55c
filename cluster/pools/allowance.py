"""How often something may happen. Pure."""


class Allowance:
    """At most `burst` times at once, and once more every `every_s`: in `t` seconds never more than
    `burst + t / every_s` times.
    """

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst = burst
        self._every_s = every_s
        self._left = float(burst)
        self._at = float("-inf")

    def allows(self, now: float) -> bool:
        """Whether once more is fine."""
        return self._left_at(now) >= 1

    def use(self, now: float) -> None:
        """It happens now."""
        self._left, self._at = self._left_at(now) - 1, now

    def _left_at(self, now: float) -> float:
        return min(float(self._burst), self._left + (now - self._at) / self._every_s)
