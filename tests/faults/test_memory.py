"""An arena and a disk that are full or lie, under load: every token is right, it is counted, nothing is held after."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from cluster.engines.simulated.faults import Faults
from kvtransfer.settings import DiskSettings
from tests.faults.pools import PROMPT_BLOCKS, PROMPT_TOKENS, Pools, pools
from tests.support.store_thread import StoreThread, running_store
from tests.unit.engines.simulated.bench import clear_prefix_cache, prompt_of, settings


def slots(model: Path, count: int) -> int:
    """Bytes of an arena of so many."""
    return count * settings(model).block_bytes


def above_disk(folder: Path) -> dict[str, Any]:
    """Limits of a store that moves what it has no room for below that folder."""
    return {"disk": DiskSettings(str(folder), 10_000_000, recall_s=5.0), "high_watermark": 0.6, "low_watermark": 0.4}


async def settled(store: StoreThread) -> None:
    """Return when nothing is on its way to the disk any more."""
    async with asyncio.timeout(5):
        while store.look(lambda held: held._leaving or held.crowding):  # noqa: ASYNC110  # of another thread
            await asyncio.sleep(0.01)


def flipped(folder: Path) -> int:
    """In each block's file one bit is wrong now; how many there are."""
    files = list(folder.glob("*/??/*"))
    for path in files:
        held = bytearray(path.read_bytes())
        held[-1] ^= 1
        path.write_bytes(held)
    return len(files)


async def ask_again(cluster: Pools, prompts: list[list[int]]) -> None:
    """With engines that remember nothing."""
    for prompt in prompts:
        for member in cluster.members:
            clear_prefix_cache(member.engine)
        await cluster.ask(prompt)


async def test_a_full_arena_changes_no_token(model: Path, fingerprint: str) -> None:
    with running_store(fingerprint, slots(model, PROMPT_BLOCKS // 2)) as store:
        async with pools(model, [store], [store]) as cluster:
            async with cluster.load() as load:
                await load.answered(30)
            assert cluster.counted("no_room_blocks") > 0
            assert cluster.counted("handoffs_failed") > 0
            await cluster.nothing_is_left()


async def test_flipped_bits_in_slots_change_no_token(model: Path, fingerprint: str) -> None:
    with running_store(fingerprint) as store:
        async with pools(model, [store], [store], faults=Faults(corrupt_commits=20)) as cluster:
            async with cluster.load() as load:
                await load.answered(30)
            assert cluster.counted("recomputed_blocks_corrupt") > 0
            assert (await cluster.statistics(store)).checksum_failures["load"] > 0
            await cluster.nothing_is_left()


async def test_flipped_bits_on_disk_change_no_token(model: Path, fingerprint: str, tmp_path: Path) -> None:
    prompts = [prompt_of(PROMPT_TOKENS, number) for number in range(6)]
    with running_store(fingerprint, slots(model, 3 * PROMPT_BLOCKS), **above_disk(tmp_path)) as store:
        async with pools(model, [store], [store]) as cluster:
            for prompt in prompts:
                await cluster.ask(prompt)
                await settled(store)
            assert flipped(tmp_path) > 0
            await ask_again(cluster, prompts)
            assert (await cluster.statistics(store)).disk_damaged_files > 0
            await cluster.nothing_is_left()


async def test_a_disk_that_fills_up_changes_no_token(
    model: Path, fingerprint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, parts: object) -> int:
        raise OSError(28, "No space left on device")

    with running_store(fingerprint, slots(model, 6 * PROMPT_BLOCKS), **above_disk(tmp_path)) as store:
        async with pools(model, [store], [store]) as cluster:
            async with cluster.load() as load:
                await load.answered(15)
                with monkeypatch.context() as patched:
                    patched.setattr(os, "writev", full)
                    await load.answered(15)
                    before = await cluster.statistics(store)
                await load.answered(15)
            after = await cluster.statistics(store)
            assert before.disk_failed_writes > 0
            assert after.disk_written_blocks > before.disk_written_blocks > 0
            await cluster.nothing_is_left()
