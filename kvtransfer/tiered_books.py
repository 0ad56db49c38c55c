"""The books with a disk below the arena.

A block can be read as long as it is in either: who follows is told when it comes into the first and when it leaves
the last, and its name stays as long. What is on disk alone is brought into a slot before it is pinned. A block in the
arena may have its file too, so that it needs no writing when it leaves again.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kvtransfer.books import StoreBooks
from kvtransfer.counters import ChecksumPlace
from kvtransfer.disk.block_file import BlockHead
from kvtransfer.disk.tier import DiskTier
from kvtransfer.settings import StoreSettings
from kvtransfer.signals import Notify
from kvtransfer.slot_records import LeavingBlock, Owner
from kvtransfer.transport import BlockKey

LEFT = "left"
"""What `changed` is told when a block has left for the disk."""


class TieredBooks(StoreBooks):
    """Without a disk it is `StoreBooks`. Files are read and written elsewhere; nothing here waits."""

    def __init__(self, settings: StoreSettings, epoch: str, clock: Callable[[], float], changed: Notify) -> None:
        super().__init__(settings, epoch, clock, changed)
        self.disk: DiskTier | None = None
        self._recaller = self.open_owner("recalls from disk")
        self._leaving = 0
        self._awaited: dict[BlockKey, set[Owner]] = {}

    def use_disk(self, disk: DiskTier, heads: Sequence[BlockHead]) -> None:
        """Keep there from now on what the arena gives up; `heads` are the files found there, the oldest first."""
        self.disk = disk
        disk.told = self._tell_of_disk
        disk.found(heads)
        for head in heads:
            if head.label is not None and self.is_readable(head.key):
                self._names.give(head.key, head.label)

    # Out of the arena

    @property
    def crowding(self) -> int:
        """See `StoreBooks`. Blocks that are on their way to disk make room soon."""
        return max(0, super().crowding - self._leaving)

    @property
    def excess(self) -> int:
        """See `StoreBooks` and `crowding`."""
        return max(0, super().excess - self._leaving)

    def make_room(self, blocks: int) -> int:
        """See `StoreBooks`. With a disk, room comes as blocks are written, and no more leave than can wait for that."""
        if self.disk is None:
            return super().make_room(blocks)
        leaving = self._slots.leave(min(blocks, self.disk.room))
        for block in leaving:
            self._leave(self.disk, block)
        return len(leaving)

    def _leave(self, disk: DiskTier, block: LeavingBlock) -> None:
        assert self.arena is not None
        self._leaving += 1
        self._moving += 1
        head = BlockHead(block.key, block.tenant, self.label_of(block.key), block.checksum, self._slot_bytes)
        left = partial(self._left, block.slot)
        if not disk.keep(head, self.arena.slot(block.slot), left):
            left()

    def _left(self, slot: int) -> None:
        self._leaving -= 1
        self._moving -= 1
        self._changed(LEFT)
        self._slots.let_go(slot)

    # Back into it

    def is_in_arena(self, key: BlockKey) -> bool:
        """Whether the block can be pinned now."""
        return self._slots.is_readable(key)

    def is_coming(self, key: BlockKey) -> bool:
        """Whether the block can be pinned now or, unless its file is damaged, as soon as it is not being written any
        more: `recall` brings it, if need be.
        """
        return self.is_in_arena(key) or self.is_being_written(key) or self._recall(key)

    def hold(self, owner: Owner, key: BlockKey) -> bool:
        """Pin a block that `is_coming` for the owner, now or in the moment in which it can be. False when it is not."""
        if self.gather(owner, "", [key]):
            return True
        if not self.is_coming(key):
            return False
        self._awaited.setdefault(key, set()).add(owner)
        return True

    def _commit(self, owner: Owner, keys: Sequence[BlockKey], checksums: Sequence[int]) -> dict[BlockKey, int]:
        slots = super()._commit(owner, keys, checksums)
        for key in self._awaited.keys() & slots.keys():
            for waiting in self._awaited.pop(key):
                if waiting in self._owners:
                    self.gather(waiting, "", [key])
        return slots

    def _lost(self, keys: Iterable[BlockKey]) -> None:
        for key in self._awaited.keys() & keys:
            del self._awaited[key]
        super()._lost(keys)

    def _recall(self, key: BlockKey) -> bool:
        disk = self.disk
        if disk is None or key not in disk or disk.is_reading_enough:
            return False
        slot = self.reserve(self._recaller, [key], disk.tenant(key)).slots[0]
        if slot is None:
            return False
        assert self.arena is not None
        disk.read(key, self.arena.slot(slot), partial(self._recalled, key))
        return True

    def _recalled(self, key: BlockKey, checksum: int | None) -> None:
        if checksum is None:
            self.abandon(self._recaller, [key])
        else:
            self.commit(self._recaller, [key], [checksum])

    # Both

    def readable(self) -> list[BlockKey]:
        """See `StoreBooks`."""
        keys = super().readable()
        return keys if self.disk is None else list(self.disk.readable().union(keys))

    def is_readable(self, key: BlockKey) -> bool:
        """See `StoreBooks`."""
        return self.is_in_arena(key) or (self.disk is not None and key in self.disk)

    def distrust(self, keys: Sequence[BlockKey], found: ChecksumPlace = "load") -> int:
        """See `StoreBooks`. Its file is not trusted either."""
        if self.disk is not None:
            for key in keys:
                self.disk.drop(key)
        return super().distrust(keys, found)

    def check(self) -> None:
        """See `StoreBooks`."""
        super().check()
        assert 0 <= self._leaving <= self._moving
        assert all(self.is_being_written(key) for key in self._awaited)
        if self.disk is not None:
            self.disk.check()

    def _tell(self, keys: Iterable[BlockKey], readable: bool) -> None:
        """Of the arena."""
        disk = self.disk
        super()._tell(keys if disk is None else [key for key in keys if key not in disk], readable)

    def _tell_of_disk(self, key: BlockKey, here: bool) -> None:
        if not self.is_in_arena(key):
            super()._tell([key], here)
