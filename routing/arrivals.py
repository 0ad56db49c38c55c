"""Who waits for blocks that another replica computes, and how that ends. Pure: whoever waits is called back.

A wait ends when the blocks are in the store, as far as the index was told, or when nobody promises them any more: who
computed them was lost, or its request was cancelled. How long is waited at most is the waiting's own business.
"""

from collections.abc import Callable
from enum import Enum

from routing.index import KvIndex
from routing.router import Coming


class Arrival(Enum):
    """How a wait ended."""

    THERE = "there"
    LOST = "lost"
    LATE = "late"


class Arrivals:
    """Owns those who wait. Looks whenever the index may have changed; `clock` is the one that promises are made by."""

    def __init__(self, index: KvIndex, clock: Callable[[], float]) -> None:
        self._index = index
        self._clock = clock
        self._waits: dict[int, tuple[Coming, Callable[[Arrival], None]]] = {}
        self._next = 0
        index.changed = self._look

    def __len__(self) -> int:
        return len(self._waits)

    def wait(self, coming: Coming, then: Callable[[Arrival], None]) -> int:
        """Call `then` once, not before this returns. The number that `forget` takes."""
        self._next += 1
        self._waits[self._next] = (coming, then)
        return self._next

    def forget(self, number: int) -> bool:
        """Do not wait any more; whether that was still the case."""
        return self._waits.pop(number, None) is not None

    def _look(self) -> None:
        if not self._waits:
            return
        now = self._clock()
        seen: dict[tuple[str, str, int], Arrival | None] = {}
        for number, (coming, then) in list(self._waits.items()):
            what = (coming.replica_id, coming.store, coming.keys[-1])
            if what not in seen:
                seen[what] = self._arrival(coming, now)
            arrival = seen[what]
            if arrival is not None:
                self.forget(number)
                then(arrival)

    def _arrival(self, coming: Coming, now: float) -> Arrival | None:
        known, needed = self._index.longest_prefix(coming.keys, now), len(coming.keys)
        if known.stores.get(coming.store, 0) >= needed:
            return Arrival.THERE
        return None if known.promised.get(coming.replica_id, 0) >= needed else Arrival.LOST
