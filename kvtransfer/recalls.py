"""Pins that wait for the disk: blocks come back into the arena before they are pinned, or they are not there.

A wait has a deadline. Whatever has come by then stays pinned until the answer is given, so that nothing that came first
goes again for what came last.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile

from kvtransfer.slot_records import Owner
from kvtransfer.store import Store
from kvtransfer.tasks import TaskSet
from kvtransfer.transport import BlockKey

TOGETHER = 64
"""Blocks that are read before the first of them is waited for."""


class Recalls:
    """Of one store."""

    def __init__(self, store: Store, deadline_s: float) -> None:
        self._store = store
        self._deadline_s = deadline_s
        self._tasks = TaskSet()

    def are_needed(self, keys: Sequence[BlockKey]) -> bool:
        """Whether the prefix in the arena goes on on disk."""
        disk = self._store.disk
        if disk is None or not len(disk):
            return False
        first = next((key for key in keys if not self._store.is_in_arena(key)), None)
        return first is not None and first in disk

    def spawn(self, keys: Sequence[BlockKey], then: Callable[[], None]) -> "asyncio.Task[None]":
        """Bring back what can be of the prefix, then call `then`, unless it is cancelled before."""
        return self._tasks.spawn(self._bring(keys, then))

    async def close(self) -> None:
        """Cancel what waits."""
        await self._tasks.close()

    async def _bring(self, keys: Sequence[BlockKey], then: Callable[[], None]) -> None:
        holder = self._store.open_owner()
        try:
            try:
                async with asyncio.timeout(self._deadline_s):
                    first = 0
                    while first < len(keys) and await self._hold(holder, keys[first : first + TOGETHER]):
                        first += TOGETHER
            except TimeoutError:
                pass
            then()
        finally:
            self._store.release_owner(holder)

    async def _hold(self, holder: Owner, keys: Sequence[BlockKey]) -> bool:
        """Pin these blocks as they come. False when one does not."""
        coming = list(takewhile(lambda key: self._store.hold(holder, key), keys))
        for key in coming:
            await self._store.until_written(key)
            if not self._store.is_in_arena(key):
                return False
        return len(coming) == len(keys)
