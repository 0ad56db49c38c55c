"""Age divided by uses: what many prompts share stays, and a chain's end goes before its start."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvtransfer.eviction.uses import Uses
from kvtransfer.transport import BlockKey

LEVELS = 4
"""Slots used by `LEVELS` prompts or more count as equally worth keeping."""


class PrefixAware:
    """Evicts the slot with the greatest age / uses, where uses are by different prompts and age is since the last one.

    Whoever uses a block uses all before it in its chain, so the start of a chain never has fewer uses than its end, nor
    an older last one (blocks are offered from the end on): while both are here, the end goes first. Within a level
    the oldest is the worst, so that a choice looks at one slot of each.
    """

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._now = 0
        self._levels: list[OrderedDict[int, int]] = [
            OrderedDict() for _ in range(LEVELS)
        ]  # slot to time of offer, oldest first
        self._level: dict[int, OrderedDict[int, int]] = {}

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        for slot, uses in zip(slots, self._uses.use(keys), strict=True):
            level = self._levels[min(uses, LEVELS) - 1]
            self._now += 1
            level[slot] = self._now
            self._level[slot] = level

    def withdraw(self, slots: Iterable[int]) -> None:
        for slot in slots:
            del self._level.pop(slot)[slot]

    def choose(self) -> int | None:
        worst, worst_score = None, -1.0
        for index, level in enumerate(self._levels):
            for slot, offered_at in level.items():
                score = (self._now - offered_at) / (index + 1)
                if score > worst_score:
                    worst, worst_score = slot, score
                break
        if worst is not None:
            self.withdraw([worst])
        return worst

    def __len__(self) -> int:
        return len(self._level)
