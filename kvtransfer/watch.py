"""One connection's watch: which blocks its store can give to read, as they come and go.

The watcher asks again after each answer, so that at most one is under way and changes net meanwhile. Nothing is kept
or done for a store that nobody watches.
"""

import asyncio

from kvtransfer.books import StoreBooks
from kvtransfer.net_changes import NetChange, NetChanges
from kvtransfer.transport import BlockKey

EVERY_S = 0.025
"""Changes are collected for at least this long, so that a busy store answers few times a second."""


class KeyWatch:
    """Follows the books from its making until `close`."""

    def __init__(self, books: StoreBooks) -> None:
        self._books = books
        self._changes: NetChanges[BlockKey] = NetChanges(books.readable)
        self._returned: dict[BlockKey, None] = {}
        self._something = asyncio.Event()
        self._answered_at = float("-inf")
        books.follow(self._note)

    def start_over(self) -> None:
        """The watcher knows nothing: the next answer is a snapshot."""
        self._changes.start_over()
        self._returned.clear()
        self._something.set()

    async def next(self, wait_s: float) -> NetChange[BlockKey]:
        """What has changed, at most `wait_s` seconds from now; empty when nothing has. What appeared may be known."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(wait_s):
                await self._something.wait()
                await asyncio.sleep(max(0.0, self._answered_at + EVERY_S - clock()))
        except TimeoutError:
            pass
        change = self._changes.take() or NetChange(False, [], [])
        change.appeared.extend(self._returned)
        self._returned.clear()
        if not self._changes.waiting:
            self._something.clear()
            self._answered_at = clock()
        return change

    def close(self) -> None:
        """Follow no more."""
        self._books.unfollow(self._note)

    def _note(self, key: BlockKey, readable: bool) -> None:
        """A block that went and came back is told again: its name went with it."""
        undone = self._changes.note(key, readable)
        if readable and undone:
            self._returned[key] = None
        elif not readable:
            self._returned.pop(key, None)
        self._something.set()
