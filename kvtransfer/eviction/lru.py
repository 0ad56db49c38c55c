"""LRU."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvtransfer.transport import BlockKey


class LeastRecentlyUsed:
    """Evicts the slot whose last use is the longest ago."""

    def __init__(self) -> None:
        self._offered: OrderedDict[int, None] = OrderedDict()  # oldest first

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        self._offered.update(dict.fromkeys(slots))

    def withdraw(self, slots: Iterable[int]) -> None:
        for slot in slots:
            del self._offered[slot]

    def choose(self) -> int | None:
        oldest = next(iter(self._offered), None)
        if oldest is not None:
            del self._offered[oldest]
        return oldest

    def __len__(self) -> int:
        return len(self._offered)
