"""LRU."""

from collections import OrderedDict

from kvtransfer.transport import BlockKey


class LeastRecentlyUsed:
    """Evicts the slot whose last use is the longest ago."""

    def __init__(self) -> None:
        self._offered: OrderedDict[int, None] = OrderedDict()  # oldest first

    def offer(self, slot: int, key: BlockKey) -> None:
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
