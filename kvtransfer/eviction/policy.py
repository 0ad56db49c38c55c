"""Which block goes when the arena is full. A policy only ever chooses blocks that may go: committed and unpinned.

Pure, and cheap: every block of every prompt passes here several times. A policy learns of a block by slot and key; it
may remember keys that are gone (a ghost queue), in a bounded number. Queues are `OrderedDict`s: the front of a plain
dict is searched for past everything that has gone from there.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kvtransfer.transport import BlockKey


class EvictionPolicy(Protocol):
    """Orders the evictable slots."""

    def offer(self, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        """The slots may be evicted from now on; the blocks in them were used just now, the last of them last. Each slot
        once, and none on offer already.

        With the key it had before, a block was pinned or asked for meanwhile; with another, what its slot held is gone.
        """
        ...

    def withdraw(self, slots: Iterable[int]) -> None:
        """The slots, on offer before, may not be evicted any more."""
        ...

    def choose(self) -> int | None:
        """The slot to evict next, withdrawn by this call, or None when there is none."""
        ...

    def __len__(self) -> int:
        """How many slots are on offer."""
        ...
