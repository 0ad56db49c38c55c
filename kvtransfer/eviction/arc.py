"""ARC (Megiddo and Modha, FAST 2003): blocks used once and blocks used again, in a proportion that ghosts adjust."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvtransfer.eviction.uses import Uses
from kvtransfer.transport import BlockKey


class AdaptiveReplacement:
    """A hit among the keys lately evicted from one side means that this side was too small. The capacity is what is on
    offer now. Pinned blocks are on neither side.
    """

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._keys: dict[int, BlockKey] = {}
        self._used: dict[int, int] = {}  # uses when the block came; negative when it came back from the ghosts
        self._once: OrderedDict[int, None] = OrderedDict()  # least recently used first, as all four
        self._again: OrderedDict[int, None] = OrderedDict()
        self._once_gone: OrderedDict[BlockKey, None] = OrderedDict()
        self._again_gone: OrderedDict[BlockKey, None] = OrderedDict()
        self._once_target = 0.0

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        for slot, key, uses in zip(slots, keys, self._uses.use(keys), strict=True):
            if self._keys.get(slot) != key:
                self._keys[slot] = key
                self._used[slot] = -1 if self._returns(key) else uses
            (self._once if uses == self._used[slot] else self._again)[slot] = None

    def withdraw(self, slots: Iterable[int]) -> None:
        for slot in slots:
            del (self._once if slot in self._once else self._again)[slot]

    def choose(self) -> int | None:
        if self._once and (len(self._once) > self._once_target or not self._again):
            side, ghosts = self._once, self._once_gone
        elif self._again:
            side, ghosts = self._again, self._again_gone
        else:
            return None
        slot = next(iter(side))
        del side[slot]
        ghosts[self._keys.pop(slot)] = None
        while len(ghosts) > len(self) + 1:
            ghosts.popitem(last=False)
        return slot

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def _returns(self, key: BlockKey) -> bool:
        """Whether a ghost comes back; learn from it."""
        once, again = len(self._once_gone), len(self._again_gone)
        if key in self._once_gone:
            del self._once_gone[key]
            self._once_target = min(float(len(self)), self._once_target + max(1.0, again / once))
            return True
        if key in self._again_gone:
            del self._again_gone[key]
            self._once_target = max(0.0, self._once_target - max(1.0, once / again))
            return True
        return False
