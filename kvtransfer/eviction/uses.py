"""How many prompts have used a block, remembered beyond its eviction.

Takes about 700 bytes for each slot of the table. Blocks are known by a hash of 64 bits: two that share one, if there
ever are, are counted as one and lose nothing but their place in the queue.
"""

from collections import OrderedDict
from collections.abc import Iterable

from kvtransfer.transport import BlockKey

REMEMBERED = 4
"""Keys remembered for each slot: a conversation's next turn often comes after its blocks have gone."""

ONE_PROMPT = 8
"""One prompt uses a block again and again: written, handed off, read by the decode engine, found by its saver. Uses
that are less than an eighth of the slots apart, counted in uses of other blocks, are one.
"""

_COUNT_BITS = 16
_MOST = (1 << _COUNT_BITS) - 1


class Uses:
    """Counts of the `REMEMBERED * slots` blocks used last."""

    def __init__(self, slots: int) -> None:
        self._capacity = REMEMBERED * slots
        self._apart = slots // ONE_PROMPT
        self._now = 0
        self._seen: OrderedDict[int, int] = OrderedDict()  # when counted last, and uses: one integer; oldest use first

    def use(self, keys: Iterable[BlockKey]) -> list[int]:
        """The blocks are used now, one after the other; how many prompts have used each, this one included."""
        counts, remembered, now = [], self._seen, self._now
        for name in map(hash, keys):
            seen = remembered.pop(name, 0)
            count = seen & _MOST
            if not count or now - (seen >> _COUNT_BITS) > self._apart:
                count = min(_MOST, count + 1)
                seen = now << _COUNT_BITS | count
                now += 1
            remembered[name] = seen
            counts.append(count)
            if len(remembered) > self._capacity:
                remembered.popitem(last=False)
        self._now = now
        return counts

    def __len__(self) -> int:
        return len(self._seen)
