"""S3-FIFO (Yang et al., SOSP 2023): a small queue for newcomers, a main one for what comes again, and ghosts."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvtransfer.eviction.uses import Uses
from kvtransfer.transport import BlockKey

SMALL = 0.1
"""The small queue's share of all blocks."""

MOST = 3
"""A block survives at most so many rounds of the main queue without a use."""


class S3Fifo:
    """A newcomer that is not used again before it reaches the end of the small queue goes; its key stays a while in the
    ghost queue, and coming back from there it enters the main queue at once. A pinned block keeps its place.
    """

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._keys: dict[int, BlockKey] = {}
        self._credit: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._offered: set[int] = set()
        self._small: OrderedDict[int, None] = OrderedDict()  # oldest first, as all three
        self._main: OrderedDict[int, None] = OrderedDict()
        self._ghosts: OrderedDict[BlockKey, None] = OrderedDict()

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        for slot, key, uses in zip(slots, keys, self._uses.use(keys), strict=True):
            if self._keys.get(slot) != key:
                self._forget(slot)
                self._keys[slot], self._credit[slot], self._used[slot] = key, 0, uses
                (self._main if key in self._ghosts else self._small)[slot] = None
                self._ghosts.pop(key, None)
            elif uses > self._used[slot]:
                self._credit[slot], self._used[slot] = min(MOST, self._credit[slot] + 1), uses
            self._offered.add(slot)

    def withdraw(self, slots: Iterable[int]) -> None:
        self._offered.difference_update(slots)

    def choose(self) -> int | None:
        while self._offered:
            slot = self._step()
            if slot is not None:
                self._forget(slot)
                return slot
        return None

    def __len__(self) -> int:
        return len(self._offered)

    def _step(self) -> int | None:
        """Look at one block: it goes, or moves."""
        if self._small and (not self._main or len(self._small) >= SMALL * len(self._keys)):
            return self._step_small()
        slot = next(iter(self._main))
        if slot in self._offered and not self._credit[slot]:
            return slot
        self._credit[slot] = max(0, self._credit[slot] - 1)
        del self._main[slot]
        self._main[slot] = None
        return None

    def _step_small(self) -> int | None:
        slot = next(iter(self._small))
        if slot in self._offered and not self._credit[slot]:
            self._ghosts[self._keys[slot]] = None
            while len(self._ghosts) > len(self._keys):
                self._ghosts.popitem(last=False)
            return slot
        del self._small[slot]
        self._main[slot] = None
        self._credit[slot] = 0
        return None

    def _forget(self, slot: int) -> None:
        if self._keys.pop(slot, None) is not None:
            self._small.pop(slot, None)
            self._main.pop(slot, None)
            self._offered.discard(slot)
            del self._credit[slot], self._used[slot]
