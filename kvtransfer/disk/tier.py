"""The disk below the arena: blocks that the arena gives up go into files, within bounds, and come back when asked for.

Everything here returns at once. Files are written and removed by one thread, in order, and read by others. A block
counts as being on disk from the end of its writing until its file is dropped, for whatever reason.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from kvtransfer.disk.block_file import BlockHead
from kvtransfer.disk.folder import BlockFolder
from kvtransfer.disk.table import DiskEntry, DiskTable
from kvtransfer.disk.work import DiskWork
from kvtransfer.errors import TornFile
from kvtransfer.slots import Follower
from kvtransfer.tenant import Tenant
from kvtransfer.transport import BlockKey

log = logging.getLogger(__name__)


@dataclass(slots=True)
class DiskCounters:
    """Grow within one epoch."""

    written_blocks: int = 0
    read_blocks: int = 0
    evicted_blocks: int = 0
    unkept_blocks: int = 0  # given up without a file: the writer had too much to do, or there was no room
    failed_writes: int = 0
    damaged_files: int = 0


class DiskTier:
    """`told` of each block that is on disk from now on, or no more."""

    def __init__(self, folder: BlockFolder, table: DiskTable, writer: DiskWork, reader: DiskWork) -> None:
        self._folder = folder
        self._table = table
        self._writer = writer
        self._reader = reader
        self._failing = False
        self.told: Follower = lambda key, here: None
        self.counters = DiskCounters()

    def __contains__(self, key: BlockKey) -> bool:
        entry = self._table.find(key)
        return entry is not None and entry.whole

    def __len__(self) -> int:
        return len(self._table)

    def readable(self) -> set[BlockKey]:
        """Every block on disk."""
        return self._table.whole()

    def tenant(self, key: BlockKey) -> Tenant:
        """Whose block it is, of one that is on disk."""
        entry = self._table.find(key)
        assert entry is not None
        return entry.tenant

    def found(self, heads: Sequence[BlockHead]) -> None:
        """Files of an earlier life, the oldest first."""
        for head in heads:
            admission = self._table.admit(head.key, head.tenant)
            self._evicted(admission.gone)
            if admission.entry is None:
                self._remove(head.key)
            elif self._table.finish(admission.entry):
                self.told(head.key, True)

    def keep(self, head: BlockHead, payload: memoryview, done: Callable[[], None]) -> bool:
        """Write a block's file; `done` when `payload` is needed no more. False when there is nothing to wait for: the
        block has a file already, or is not kept.
        """
        entry = self._table.find(head.key)
        if entry is not None:
            self._table.use(entry)
            return False
        if not self.room:
            self.counters.unkept_blocks += 1
            return False
        admission = self._table.admit(head.key, head.tenant)
        self._evicted(admission.gone)
        if admission.entry is None:
            self.counters.unkept_blocks += 1
            return False
        self._writer.submit(partial(self._folder.write, head, payload), partial(self._written, admission.entry, done))
        return True

    @property
    def room(self) -> int:
        """How many blocks can be kept now."""
        return self._writer.room

    def read(self, key: BlockKey, into: memoryview, done: Callable[[int | None], None]) -> None:
        """Bring a block that is on disk; `done` with its checksum, or with None when it could not be read."""
        entry = self._table.find(key)
        assert entry is not None
        self._reader.submit(partial(self._folder.read, key, into), lambda result: done(self._was_read(entry, result)))

    def statistics(self) -> dict[str, int]:
        """Blocks here and counters, as `StoreStatistics` names them."""
        return {"disk_blocks": len(self), **{f"disk_{name}": n for name, n in asdict(self.counters).items()}}

    @property
    def is_reading_enough(self) -> bool:
        """Whether no more should be read for now."""
        return not self._reader.room

    def drop(self, key: BlockKey) -> bool:
        """Forget a block. False when it is not here."""
        entry = self._table.find(key)
        return entry is not None and self._drop(entry)

    async def close(self) -> None:
        """Return when no thread touches the arena any more. What was written stays."""
        await self._reader.close()
        await self._writer.close()
        self._folder.close()

    def check(self) -> None:
        """Assert the invariants: for tests."""
        self._table.check()

    def _drop(self, entry: DiskEntry) -> bool:
        if not self._table.drop(entry):
            return False
        self._gone(entry)
        return True

    def _written(self, entry: DiskEntry, done: Callable[[], None], result: Any) -> None:
        failed = isinstance(result, BaseException)
        if failed:
            self.counters.failed_writes += 1
            if not self._failing:
                log.warning("a KV block could not be written below %s: %s", self._folder.folder, result)
            self._table.drop(entry)
        elif self._table.finish(entry):
            self.counters.written_blocks += 1
            self.told(entry.key, True)
        self._failing = failed
        done()

    def _was_read(self, entry: DiskEntry, result: Any) -> int | None:
        if isinstance(result, BlockHead):
            self.counters.read_blocks += 1
            if self._table.find(entry.key) is entry:
                self._table.use(entry)
            return result.checksum
        if isinstance(result, TornFile | OSError) and self._drop(entry):
            self.counters.damaged_files += 1
            log.warning("the file of a KV block was dropped: %s", result)
        return None

    def _evicted(self, entries: Sequence[DiskEntry]) -> None:
        self.counters.evicted_blocks += len(entries)
        for entry in entries:
            self._gone(entry)

    def _gone(self, entry: DiskEntry) -> None:
        self._remove(entry.key)
        if entry.whole:
            entry.whole = False
            self.told(entry.key, False)

    def _remove(self, key: BlockKey) -> None:
        self._writer.submit(partial(self._folder.remove, key), lambda result: None)
