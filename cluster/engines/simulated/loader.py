"""Brings blocks from the node's store into the device: pin, copy, verify, unpin.

What is missing, late or corrupt is left to be computed; the result says how much is usable and why there is not more.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.engines.simulated.device import DeviceMemory
from cluster.engines.simulated.faults import Injected
from cluster.engines.simulated.store_link import Attachment, StoreLink
from kvtransfer.errors import KvTransferError, RequestRefused
from kvtransfer.protocol import PinnedBlock

_SLICE_BYTES = 4 * 1024 * 1024  # copied before others get a turn


@dataclass(slots=True)
class LoadResult:
    """The first `usable` blocks asked for are on the device. `corrupt` more were in the store and had to be dropped.

    `reason` says why there are not more: "" when the store had no more, else "corrupt", "failed" or "late".
    """

    usable: int = 0
    corrupt: int = 0
    reason: str = ""


class BlockLoader:
    """Holds nothing between calls."""

    def __init__(self, link: StoreLink, device: DeviceMemory, injected: Injected) -> None:
        self._link = link
        self._device = device
        self._injected = injected

    async def load(self, keys: Sequence[bytes], blocks: Sequence[int], wanted: Callable[[], bool]) -> LoadResult:
        """Fill `blocks` with the longest prefix of `keys` the store has; never raises for the store's faults.

        `wanted` is asked after every wait: once it says no, the blocks belong to somebody else and are not touched.
        """
        result = LoadResult()
        attachment = self._link.attachment
        if attachment is None or self._injected.current.drop_loads:
            result.reason = "failed"
            return result
        try:
            async with asyncio.timeout(self._link.deadline_s):
                await self._load(attachment, keys, blocks, wanted, result)
        except RequestRefused:
            result.reason = "failed"
        except TimeoutError:
            await self._link.lose(attachment)
            result.reason = "late"
        except KvTransferError:
            await self._link.lose(attachment)
            result.reason = "failed"
        return result

    async def _load(
        self,
        attachment: Attachment,
        keys: Sequence[bytes],
        blocks: Sequence[int],
        wanted: Callable[[], bool],
        result: LoadResult,
    ) -> None:
        pinned = await attachment.client.pin(list(keys))
        if not pinned:
            return
        held = list(keys[: len(pinned)])
        try:
            await self._copy(attachment, pinned, blocks, wanted, result)
        finally:
            await attachment.client.unpin(held)
        if result.reason == "corrupt":
            await attachment.client.distrust([held[result.usable]])

    async def _copy(
        self,
        attachment: Attachment,
        pinned: Sequence[PinnedBlock],
        blocks: Sequence[int],
        wanted: Callable[[], bool],
        result: LoadResult,
    ) -> None:
        array, copied_bytes = attachment.arena.array, 0
        for source, block in zip(pinned, blocks, strict=False):
            if not wanted():
                return
            checksum = self._device.load(block, array[source.slot])
            if checksum != source.checksum and self._injected.current.verify:
                result.corrupt, result.reason = len(pinned) - result.usable, "corrupt"
                return
            result.usable += 1
            copied_bytes += array.shape[1]
            if copied_bytes >= _SLICE_BYTES:
                copied_bytes = 0
                await asyncio.sleep(0)
