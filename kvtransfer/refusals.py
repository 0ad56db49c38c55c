"""Who is turned away: counted each time, said once for each host and reason.

A node that is set up wrong tries again every few seconds, for as long as nobody mends it.
"""

import logging

REMEMBERED = 256
"""Hosts and reasons; the one said longest ago is forgotten, and said again."""


class Refusals:
    """One for each door, or for all doors that this side knocks at."""

    def __init__(self, logger: logging.Logger, text: str = "%s refused: %s") -> None:
        """`text` has places for the host and the reason."""
        self.count = 0
        self._logger = logger
        self._text = text
        self._said: dict[tuple[str, str], None] = {}

    def note(self, host: str, why: str) -> None:
        """This host was turned away, for this reason."""
        self.count += 1
        if (host, why) in self._said:
            return
        self._said[host, why] = None
        if len(self._said) > REMEMBERED:
            del self._said[next(iter(self._said))]
        self._logger.warning(self._text, host, why)

    def __repr__(self) -> str:
        return f"<Refusals {self.count}>"
