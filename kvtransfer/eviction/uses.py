"""How many prompts have used a block, remembered beyond its eviction.

Takes about 700 bytes for each slot of the table. Blocks are known by a hash of 64 bits: two that share one, if there
ever are, are counted as one and lose nothing but their place in the queue.
"""

from collections import OrderedDict

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

    def use(self, key: BlockKey) -> int:
        """The block is used now; how many prompts have used it, this one included."""
        name = hash(key)
        seen = self._seen.pop(name, 0)
        counted_at, count = seen >> _COUNT_BITS, seen & _MOST
        if not count or self._now - counted_at > self._apart:
            count, counted_at = min(_MOST, count + 1), self._now
            self._now += 1
        self._seen[name] = counted_at << _COUNT_BITS | count
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return count

    def __len__(self) -> int:
        return len(self._seen)
