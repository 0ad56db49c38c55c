"""How many tokens a request will produce: learnt from those that finished, because `max_tokens` says little.

Requests are told apart by the size of their `max_tokens` in powers of two, at most 64 classes; each has a mean that
forgets, and starts from `FIRST_GUESS`.
"""

FIRST_GUESS = 256
_WEIGHT = 0.05
_GUESS_COUNTS_AS = 2


class OutputLengths:
    """Owns the means."""

    def __init__(self, first_guess: float = FIRST_GUESS) -> None:
        self._first_guess = first_guess
        self._means: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def expected(self, max_tokens: int) -> int:
        """The expected output of a request that may produce at most `max_tokens`."""
        return max(1, min(max_tokens, round(self._means.get(max_tokens.bit_length(), self._first_guess))))

    def observe(self, max_tokens: int, produced: int) -> None:
        """A request came to its own end after `produced` tokens."""
        size = max_tokens.bit_length()
        count = self._counts[size] = self._counts.get(size, _GUESS_COUNTS_AS) + 1
        mean = self._means.get(size, min(self._first_guess, max_tokens))
        self._means[size] = mean + max(_WEIGHT, 1 / count) * (produced - mean)
