"""Age divided by a weight that grows with uses: what many prompts share stays, and a chain's end goes before its start.
How much uses count, experience says, as in ARC.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvtransfer.eviction.uses import Uses
from kvtransfer.transport import BlockKey

LEVELS = 8
"""Slots used by `LEVELS` prompts or more count as equally worth keeping."""

MOST_BIAS = 4.0
PACE = 8.0
"""A round of all slots, each of them missed once, would move the bias by so much at least."""


class PrefixAware:
    """Evicts the slot with the greatest age / (1 + bias * (uses - 1)), where uses are by different prompts and age is
    since the last one.

    Whoever uses a block uses all before it in its chain, so the start of a chain never has fewer uses than its end, nor
    an older last one (blocks are offered from the end on): while both are here, the end goes first. Within a level
    the oldest is the worst, so that a choice looks at one slot of each.

    Without bias it is LRU. A block that comes back after it was evicted should have stayed: one that had one use asks
    for less bias, one that had more for more, with the more weight the fewer of its kind were evicted lately.
    """

    def __init__(self, uses: Uses) -> None:
        self.bias = 1.0
        self._uses = uses
        self._now = 0
        self._keys: dict[int, BlockKey] = {}
        self._levels: list[OrderedDict[int, int]] = [
            OrderedDict() for _ in range(LEVELS)
        ]  # slot to time of offer, oldest first
        self._level: dict[int, OrderedDict[int, int]] = {}
        self._once_gone: OrderedDict[BlockKey, None] = OrderedDict()
        self._again_gone: OrderedDict[BlockKey, None] = OrderedDict()

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        for slot, key, uses in zip(slots, keys, self._uses.use(keys), strict=True):
            if self._keys.get(slot) != key:
                self._keys[slot] = key
                self._learn(key)
            level = self._levels[min(uses, LEVELS) - 1]
            self._now += 1
            level[slot] = self._now
            self._level[slot] = level

    def withdraw(self, slots: Iterable[int]) -> None:
        for slot in slots:
            del self._level.pop(slot)[slot]

    def choose(self) -> int | None:
        worst, worst_score, ghosts = None, -1.0, self._once_gone
        for index, level in enumerate(self._levels):
            for slot, offered_at in level.items():
                score = (self._now - offered_at) / (1.0 + self.bias * index)
                if score > worst_score:
                    worst, worst_score = slot, score
                    ghosts = self._again_gone if index else self._once_gone
                break
        if worst is not None:
            self.withdraw([worst])
            ghosts[self._keys.pop(worst)] = None
            while len(ghosts) > len(self) + 1:
                ghosts.popitem(last=False)
        return worst

    def __len__(self) -> int:
        return len(self._level)

    def _learn(self, key: BlockKey) -> None:
        once, again = len(self._once_gone), len(self._again_gone)
        step = PACE / (len(self) + 1)
        if key in self._once_gone:
            del self._once_gone[key]
            self.bias = max(0.0, self.bias - step * max(1.0, again / once))
        elif key in self._again_gone:
            del self._again_gone[key]
            self.bias = min(MOST_BIAS, self.bias + step * max(1.0, once / again))
