"""How fast a line moves, measured while it does: tokens a second, the last seconds weighing most."""

from math import exp

MEMORY_S = 10.0
"""What was seen this long ago weighs 1/e."""


class DrainRate:
    """Sums of tokens and of seconds that fade together: their ratio is the rate. Invariant: neither is negative."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._since: float | None = None

    @property
    def measuring(self) -> bool:
        """Whether somebody waits."""
        return self._since is not None

    def begins(self, now: float, tokens: int, in_s: float) -> None:
        """Something waits from now on. That the replicas have `tokens` to do `in_s` is a first guess."""
        self._since = now
        if not self._seconds and in_s > 0:
            self._tokens, self._seconds = float(tokens), in_s

    def moves(self, now: float, tokens: int) -> None:
        """Somebody goes who waited."""
        assert self._since is not None, "nobody waits"
        passed_s, self._since = max(0.0, now - self._since), now
        kept = exp(-passed_s / MEMORY_S)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + passed_s

    def ends(self) -> None:
        """Nobody waits: time that passes now says nothing."""
        self._since = None

    def seconds_for(self, tokens: float, now: float) -> float | None:
        """How long `tokens` in line take to go; None while nothing is known. A line that stands still gets slower."""
        if not self._tokens or not self._seconds:
            return None
        still_s = 0.0 if self._since is None else max(0.0, now - self._since)
        return tokens * (self._seconds + still_s) / self._tokens
