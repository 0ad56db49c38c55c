"""Opens the disk tier of a store: claims a folder and finds what an earlier life left there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvtransfer.disk.block_file import HEAD_BYTES, BlockHead
from kvtransfer.disk.folder import BlockFolder
from kvtransfer.disk.table import DiskTable
from kvtransfer.disk.tier import DiskTier
from kvtransfer.disk.work import ThreadWork
from kvtransfer.eviction.choice import PolicyName, policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.settings import DiskSettings
from kvtransfer.tenant import Tenant

READERS = 4


@dataclass(frozen=True, slots=True)
class OpenedDisk:
    """The tier, and the files it is to begin with."""

    tier: DiskTier
    heads: list[BlockHead]


async def open_disk(
    settings: DiskSettings, namespace: str, slot_bytes: int, eviction: PolicyName, weights: Mapping[Tenant, float]
) -> OpenedDisk:
    """Raises `OSError` when the folder cannot be used, also when not even one block would fit."""
    places = settings.bytes // (HEAD_BYTES + slot_bytes)
    if not places:
        raise OSError(f"{settings.bytes} bytes do not hold a block of {slot_bytes} bytes")
    folder = await asyncio.to_thread(BlockFolder.claim, Path(settings.path), namespace)
    try:
        heads = await asyncio.to_thread(folder.scan, slot_bytes)
    except BaseException:
        folder.close()
        raise
    shares = TenantShares(places, policy_maker(eviction, places), weights)
    writer = ThreadWork("disk-writer", 1, settings.max_waiting_writes)
    reader = ThreadWork("disk-reader", READERS, settings.max_reads)
    return OpenedDisk(DiskTier(folder, DiskTable(places, shares), writer, reader), heads)
