"""How many prompts have used a block, remembered beyond its eviction."""

from collections import OrderedDict

from kvtransfer.transport import BlockKey

REMEMBERED = 4
"""Keys remembered for each slot: a conversation's next turn often comes after its blocks have gone."""

ONE_PROMPT = 8
"""One prompt uses a block again and again: written, handed off, read by the decode engine, found by its saver. Uses
that are less than an eighth of the slots apart, counted in uses of other blocks, are one.
"""


class Uses:
    """Counts by key, of the `REMEMBERED * slots` keys used last."""

    def __init__(self, slots: int) -> None:
        self._capacity = REMEMBERED * slots
        self._apart = slots // ONE_PROMPT
        self._now = 0
        self._counts: OrderedDict[BlockKey, tuple[int, int]] = (
            OrderedDict()
        )  # uses and when the last was counted; oldest use first

    def use(self, key: BlockKey) -> int:
        """The block is used now; how many prompts have used it, this one included."""
        count, counted_at = self._counts.pop(key, (0, 0))
        if not count or self._now - counted_at > self._apart:
            count, counted_at = count + 1, self._now
            self._now += 1
        self._counts[key] = (count, counted_at)
        if len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
        return count

    def __len__(self) -> int:
        return len(self._counts)
