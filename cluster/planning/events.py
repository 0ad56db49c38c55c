"""Virtual time: what is to happen, in order."""

import heapq
from collections.abc import Callable


class Events:
    """A queue of actions by time; equal times in the order they were added. `now` only grows."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do `action` at `time`; at once in turn when that is past."""
        heapq.heappush(self._heap, (max(time, self.now), self._added, action))
        self._added += 1

    def run(self, until: float = float("inf")) -> None:
        """Do everything there is up to time `until`, and what that brings."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
