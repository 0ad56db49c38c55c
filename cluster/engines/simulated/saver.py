"""Commits finished blocks to the node's store, in order, while the engine goes on stepping.

A block that waits here is referred to in the block table, so that nobody overwrites it before it is copied. Notices
of hand-offs travel in the same order: a hand-off is concluded after its last block was committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.engines.simulated.block_table import BlockTable
from cluster.engines.simulated.device import DeviceMemory
from cluster.engines.simulated.faults import Injected
from cluster.engines.simulated.store_link import Attachment, StoreLink
from kvtransfer.errors import KvTransferError, RequestRefused

_ROUND_BLOCKS = 256  # reserved and committed at once


@dataclass(frozen=True, slots=True)
class Announcement:
    """The hand-off's blocks, in prompt order."""

    handoff_id: str
    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """No more blocks come for this hand-off."""

    handoff_id: str


@dataclass(frozen=True, slots=True)
class SavedBlock:
    """A whole block on the device, held until it is in the store."""

    key: bytes
    block: int


Order = Announcement | Conclusion | SavedBlock


class BlockSaver:
    """Invariant: each waiting `SavedBlock` has one reference. Beyond `max_waiting` blocks, new ones are not saved."""

    def __init__(
        self, link: StoreLink, device: DeviceMemory, table: BlockTable, injected: Injected, released: Callable[[], None]
    ) -> None:
        self._link = link
        self._device = device
        self._table = table
        self._injected = injected
        self._released = released
        self._orders: deque[Order] = deque()
        self._waiting = asyncio.Event()
        self.saved_blocks = 0
        self.no_room_blocks = 0
        self.unsaved_blocks = 0

    def announce(self, handoff_id: str, keys: Sequence[bytes]) -> None:
        """Tell the store which blocks a hand-off will have."""
        self._put(Announcement(handoff_id, keys))

    def conclude(self, handoff_id: str) -> None:
        """Tell the store that nothing more comes for a hand-off."""
        self._put(Conclusion(handoff_id))

    def save(self, keys: Sequence[bytes], blocks: Sequence[int], max_waiting: int) -> None:
        """Commit whole blocks; without a store, or with too many waiting, they are only counted."""
        room = max_waiting - len(self._orders) if self._link.attachment else 0
        taken = list(zip(keys, blocks, strict=True))[: max(0, room)]
        self.unsaved_blocks += len(keys) - len(taken)
        self._table.share([block for _, block in taken])
        for key, block in taken:
            self._put(SavedBlock(key, block))

    async def run(self) -> None:
        """Carry out orders until cancelled; releases what is left then."""
        try:
            while True:
                await self._waiting.wait()
                self._waiting.clear()
                while self._orders:
                    await self._next_round()
        finally:
            self._release([order for order in self._orders if isinstance(order, SavedBlock)])
            self._orders.clear()

    def _put(self, order: Order) -> None:
        self._orders.append(order)
        self._waiting.set()

    async def _next_round(self) -> None:
        saves = self._take_saves()
        order = None if saves else self._orders.popleft()
        attachment = self._link.attachment
        try:
            if attachment is not None:
                async with asyncio.timeout(self._link.deadline_s):
                    await self._carry_out(attachment, order, saves)
        except RequestRefused:
            self.unsaved_blocks += len(saves)
        except (KvTransferError, TimeoutError):
            assert attachment is not None
            await self._link.lose(attachment)
            self.unsaved_blocks += len(saves)
        finally:
            self._release(saves)

    def _take_saves(self) -> list[SavedBlock]:
        saves: list[SavedBlock] = []
        while self._orders and isinstance(self._orders[0], SavedBlock) and len(saves) < _ROUND_BLOCKS:
            order = self._orders.popleft()
            assert isinstance(order, SavedBlock)
            saves.append(order)
        return saves

    async def _carry_out(self, attachment: Attachment, order: Order | None, saves: list[SavedBlock]) -> None:
        match order:
            case Announcement(handoff_id, keys):
                await attachment.client.announce(handoff_id, list(keys))
            case Conclusion(handoff_id):
                await attachment.client.conclude(handoff_id)
            case _:
                await self._commit(attachment, saves)

    async def _commit(self, attachment: Attachment, saves: list[SavedBlock]) -> None:
        reserved = await attachment.client.reserve([save.key for save in saves])
        written = [(save, slot) for save, slot in zip(saves, reserved.slots, strict=True) if slot is not None]
        self.no_room_blocks += reserved.full
        if not written:
            return
        checksums = [self._write(attachment, save.block, slot) for save, slot in written]
        await attachment.client.commit([save.key for save, _ in written], checksums)
        self.saved_blocks += len(written)

    def _write(self, attachment: Attachment, block: int, slot: int) -> int:
        row = attachment.arena.array[slot]
        checksum = self._device.save(block, row)
        if self._injected.corrupts_commit():
            row[0] ^= 0xFF
        return checksum

    def _release(self, saves: Sequence[SavedBlock]) -> None:
        self._table.release([save.block for save in saves])
        if saves:
            self._released()
