"""Which block goes when the arena is full. A policy only ever chooses blocks that may go: committed and unpinned.

Pure, and cheap: each call is made for every block of every prompt. A policy learns of a block by slot and key; it may
remember keys that are gone (a ghost queue), in a bounded number. Queues are `OrderedDict`s: the front of a plain dict
is searched for past everything that has gone from there.
"""

from typing import Protocol

from kvtransfer.transport import BlockKey


class EvictionPolicy(Protocol):
    """Orders the evictable slots."""

    def offer(self, slot: int, key: BlockKey) -> None:
        """The slot may be evicted from now on; the block in it was used just now. Not on offer already.

        With the key it had before, the block was pinned or asked for meanwhile; with another, what it held is gone.
        """
        ...

    def withdraw(self, slot: int) -> None:
        """The slot, on offer before, may not be evicted any more."""
        ...

    def choose(self) -> int | None:
        """The slot to evict next, withdrawn by this call, or None when there is none."""
        ...

    def __len__(self) -> int:
        """How many slots are on offer."""
        ...
