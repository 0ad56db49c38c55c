"""Which block goes when the arena is full. A policy only ever sees blocks that may go: committed and unpinned."""

from typing import Protocol


class EvictionPolicy(Protocol):
    """Orders the evictable slots."""

    def offer(self, slot: int) -> None:
        """The slot may be evicted from now on; it was used just now. Not offered already."""
        ...

    def withdraw(self, slot: int) -> None:
        """The slot, offered before, may not be evicted any more."""
        ...

    def choose(self) -> int | None:
        """The slot to evict next, withdrawn by this call, or None when there is none."""
        ...

    def __len__(self) -> int:
        """How many slots are on offer."""
        ...


class LeastRecentlyUsed:
    """Evicts the slot whose last use is the longest ago."""

    def __init__(self) -> None:
        self._offered: dict[int, None] = {}  # oldest first

    def offer(self, slot: int) -> None:
        self._offered[slot] = None

    def withdraw(self, slot: int) -> None:
        del self._offered[slot]

    def choose(self) -> int | None:
        oldest = next(iter(self._offered), None)
        if oldest is not None:
            del self._offered[oldest]
        return oldest

    def __len__(self) -> int:
        return len(self._offered)
