"""The places of an engine's batch, in virtual time: first come, first served."""

from collections.abc import Callable


class Seats:
    """Whoever takes a place leaves it, or the wait for it. `most_waiting` is the longest that the line ever was."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._sitting: set[object] = set()
        self._waiting: dict[object, Callable[[], None]] = {}
        self.most_waiting = 0

    def take(self, who: object, begin: Callable[[], None]) -> None:
        """Call `begin` when there is a place."""
        self._waiting[who] = begin
        self._admit()
        self.most_waiting = max(self.most_waiting, len(self._waiting))

    def leave(self, who: object) -> None:
        """Later calls change nothing."""
        self._sitting.discard(who)
        self._waiting.pop(who, None)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._sitting) < self._places:
            who = next(iter(self._waiting))
            self._sitting.add(who)
            self._waiting.pop(who)()
