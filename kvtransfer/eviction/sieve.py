"""SIEVE (Zhang et al., NSDI 2024): a queue in order of arrival and a hand that spares what was used since it passed."""

from collections.abc import Iterable, Sequence

from kvtransfer.eviction.uses import Uses
from kvtransfer.transport import BlockKey


class Sieve:
    """The hand goes from the oldest block to the newest and evicts the first that was not used since its last round.

    A block that is pinned keeps its place in the queue; the hand passes it over. Neighbours in the queue are linked,
    with -1 as the end on both sides.
    """

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._keys: dict[int, BlockKey] = {}
        self._seen: dict[int, int] = {}  # uses when the hand last passed
        self._used: dict[int, int] = {}
        self._offered: set[int] = set()
        self._newer: dict[int, int] = {-1: -1}
        self._older: dict[int, int] = {-1: -1}
        self._hand = -1

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        for slot, key, uses in zip(slots, keys, self._uses.use(keys), strict=True):
            if self._keys.get(slot) != key:
                self._forget(slot)
                self._keys[slot], self._seen[slot] = key, uses
                self._link(self._older[-1], slot)
                self._link(slot, -1)
            self._used[slot] = uses
            self._offered.add(slot)

    def withdraw(self, slots: Iterable[int]) -> None:
        self._offered.difference_update(slots)

    def choose(self) -> int | None:
        if not self._offered:
            return None
        slot = self._hand
        while slot not in self._offered or self._used[slot] > self._seen[slot]:
            if slot in self._used:
                self._seen[slot] = self._used[slot]
            slot = self._newer[slot]
        self._hand = slot
        self._forget(slot)
        return slot

    def __len__(self) -> int:
        return len(self._offered)

    def _link(self, older: int, newer: int) -> None:
        self._newer[older], self._older[newer] = newer, older

    def _forget(self, slot: int) -> None:
        if self._keys.pop(slot, None) is None:
            return
        if self._hand == slot:
            self._hand = self._newer[slot]
        self._link(self._older.pop(slot), self._newer.pop(slot))
        self._offered.discard(slot)
        del self._seen[slot], self._used[slot]
