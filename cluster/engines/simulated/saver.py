"""Commits finished blocks to the node's store while the engine goes on stepping.

A block that waits here is referred to in the block table, so that nobody overwrites it before it is copied. What has
gathered is carried out in rounds: first announcements, then blocks, then conclusions, so that a hand-off is concluded
after its last block was committed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile

from cluster.engines.simulated.block_table import BlockTable
from cluster.engines.simulated.device import DeviceMemory
from cluster.engines.simulated.faults import Injected
from cluster.engines.simulated.store_link import Attachment, StoreLink
from kvtransfer.errors import KvTransferError, RequestRefused
from kvtransfer.tenant import Tenant

_TOGETHER = 256  # blocks reserved and committed at once


@dataclass(frozen=True, slots=True)
class SavedBlock:
    """A whole block on the device, held until it is in the store."""

    key: bytes
    block: int
    tenant: Tenant


@dataclass(slots=True)
class Round:
    """What is to be told to the store. Bounded by the engine: its open requests and `max_waiting` blocks."""

    announcements: list[tuple[str, Sequence[bytes]]] = field(default_factory=list)
    saves: list[SavedBlock] = field(default_factory=list)
    conclusions: list[str] = field(default_factory=list)


class BlockSaver:
    """Invariant: each `SavedBlock` of the round that gathers has one reference."""

    def __init__(
        self, link: StoreLink, device: DeviceMemory, table: BlockTable, injected: Injected, released: Callable[[], None]
    ) -> None:
        self._link = link
        self._device = device
        self._table = table
        self._injected = injected
        self._released = released
        self._gathering = Round()
        self._something = asyncio.Event()
        self.saved_blocks = 0
        self.no_room_blocks = 0
        self.unsaved_blocks = 0

    def announce(self, handoff_id: str, keys: Sequence[bytes]) -> None:
        """Tell the store which blocks a hand-off will have."""
        self._gathering.announcements.append((handoff_id, keys))
        self._something.set()

    def conclude(self, handoff_id: str) -> None:
        """Tell the store that nothing more comes for a hand-off."""
        self._gathering.conclusions.append(handoff_id)
        self._something.set()

    def save(self, keys: Sequence[bytes], blocks: Sequence[int], tenant: Tenant, max_waiting: int) -> None:
        """Commit a tenant's whole blocks; without a store, or with `max_waiting` waiting, they are only counted."""
        room = max_waiting - len(self._gathering.saves) if self._link.attachment else 0
        taken = [SavedBlock(key, block, tenant) for key, block in zip(keys, blocks, strict=True)][: max(0, room)]
        self.unsaved_blocks += len(keys) - len(taken)
        self._table.share([save.block for save in taken])
        self._gathering.saves += taken
        self._something.set()

    async def run(self) -> None:
        """Carry out rounds until cancelled; releases what is left then."""
        try:
            while True:
                await self._something.wait()
                self._something.clear()
                gathered, self._gathering = self._gathering, Round()
                await self._carry_out(gathered)
        finally:
            self._release(self._gathering.saves)
            self._gathering = Round()

    async def _carry_out(self, gathered: Round) -> None:
        await self._tell(lambda to: (to.client.announce(name, list(keys)) for name, keys in gathered.announcements))
        left = gathered.saves
        try:
            while left:
                together = _of_one_tenant(left[:_TOGETHER])
                await self._save(together)
                self._release(together)
                left = left[len(together) :]
        finally:
            self._release(left)
        await self._tell(lambda to: map(to.client.conclude, gathered.conclusions))

    async def _tell(self, notices: Callable[[Attachment], Iterable[Awaitable[None]]]) -> None:
        """Send notices, many under way at once; one that is refused concerns only its own hand-off."""
        attachment = self._link.attachment
        if attachment is None:
            return
        answers = await asyncio.gather(*notices(attachment), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if any(not isinstance(failure, RequestRefused) for failure in failures):
            await self._link.lose(attachment)

    async def _save(self, saves: list[SavedBlock]) -> None:
        """All of one tenant."""
        attachment = self._link.attachment
        saved = 0
        if attachment is not None:
            try:
                async with asyncio.timeout(self._link.deadline_s):
                    with suppress(RequestRefused):
                        saved = await self._commit(attachment, saves)
            except (KvTransferError, TimeoutError):
                await self._link.lose(attachment)
        self.unsaved_blocks += len(saves) - saved

    async def _commit(self, attachment: Attachment, saves: list[SavedBlock]) -> int:
        """How many of the blocks the store has now, or has no room for."""
        reserved = await attachment.client.reserve([save.key for save in saves], saves[0].tenant)
        written = [(save, slot) for save, slot in zip(saves, reserved.slots, strict=True) if slot is not None]
        if written:
            checksums = [self._write(attachment, save.block, slot) for save, slot in written]
            await attachment.client.commit([save.key for save, _ in written], checksums)
        self.saved_blocks += len(written)
        self.no_room_blocks += reserved.full
        return len(saves)

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


def _of_one_tenant(saves: Sequence[SavedBlock]) -> list[SavedBlock]:
    """The first ones, up to another tenant's."""
    return list(takewhile(lambda save: save.tenant == saves[0].tenant, saves))
