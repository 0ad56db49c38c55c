"""The text of one output: incremental decoding and stop strings, with vLLM's rules.

While a stop string may still be completed, its possible beginning is held back: as many characters as the longest
stop string has, less one. Nothing is held back when stop strings are part of the output.
"""

from collections.abc import Iterable

from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.vocabulary import TextStream


class OutputText:
    """Invariant: what `take` has returned is a prefix of the final text."""

    def __init__(self, stream: TextStream, sampling: Sampling) -> None:
        self._stream = stream
        self._stops = sampling.stop_strings
        self._keep_stop = sampling.include_stop_str_in_output
        self._min_tokens = sampling.min_tokens
        self._held_back = 0 if self._keep_stop or not self._stops else max(map(len, self._stops)) - 1
        self._text = ""
        self._taken = 0
        self._tokens = 0

    def add(self, token_id: int, ends: bool) -> str | None:
        """Decode one more token; returns the stop string it completes. `ends`: it is a stop token, which is not
        shown unless stop strings are."""
        self._tokens += 1
        if ends and not self._keep_stop:
            return None
        piece = self._stream.step(token_id)
        if not self._stops:
            self._text = piece if self._taken == len(self._text) else self._text[self._taken :] + piece
            self._taken = 0
            return None
        self._text += piece
        return self._match(len(piece)) if self._tokens > self._min_tokens else None

    def go_on(self, token_ids: Iterable[int], text_chars: int) -> None:
        """Another engine has made these tokens, and handed out so many characters of their text."""
        for token_id in token_ids:
            self.add(token_id, ends=False)
        self._taken = text_chars

    def take(self, finished: bool) -> str:
        """The text not returned before, without what is held back."""
        end = len(self._text) - (0 if finished else self._held_back)
        if end <= self._taken:
            return ""
        text, self._taken = self._text[self._taken : end], end
        return text

    def _match(self, new_characters: int) -> str | None:
        if new_characters == 0:
            return None
        ends = [(self._find(stop, new_characters), stop) for stop in self._stops]
        matches = [(at + len(stop), at, stop) for at, stop in ends if at is not None]
        if not matches:
            return None
        end, at, stop = min(matches, key=lambda match: match[0])
        self._text = self._text[: end if self._keep_stop else at]
        return stop

    def _find(self, stop: str, new_characters: int) -> int | None:
        at = self._text.find(stop, max(0, len(self._text) - new_characters - len(stop) + 1))
        return None if at < 0 else at
