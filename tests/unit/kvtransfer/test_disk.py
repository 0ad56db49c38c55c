"""A store with a disk below its arena, at its socket: what the arena gives up comes back, whole or not at all."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.arena import Arena
from kvtransfer.checksum import block_checksum
from kvtransfer.disk.block_file import HEAD_BYTES
from kvtransfer.disk.folder import BlockFolder
from kvtransfer.server import StoreServer
from kvtransfer.settings import DiskSettings
from kvtransfer.tenant import tenant_of
from tests.unit.kvtransfer.conftest import SLOT_BYTES, Connect, MakeServer, until

SLOTS = 8
FILE_BYTES = SLOT_BYTES + HEAD_BYTES

Start = Callable[..., Awaitable[StoreServer]]


def keys(count: int, first: int = 0, salt: bytes = b"") -> list[bytes]:
    return [salt + number.to_bytes(4, "big") * 8 for number in range(first, first + count)]


def content(key: bytes) -> bytes:
    return (key * SLOT_BYTES)[:SLOT_BYTES]


@pytest.fixture
async def start(tmp_path: Path, make_server: MakeServer) -> Start:
    """Starts a store of 8 slots over a disk of that many blocks, both below `tmp_path`."""

    async def begin(blocks: int = 100, max_waiting_writes: int = 64, **options: float) -> StoreServer:
        disk = DiskSettings(str(tmp_path / "disk"), blocks * FILE_BYTES, max_waiting_writes, recall_s=5.0)
        server = await make_server(slots=SLOTS, disk=disk, high_watermark=0.75, low_watermark=0.5, **options)  # type: ignore[arg-type]
        server.store.attach(SLOT_BYTES)
        await until(lambda: server.store.disk is not None)
        return server

    return begin


class Engine:
    """Writes and reads as an engine does."""

    def __init__(self, server: StoreServer, client: AsyncStoreClient, arena: Arena) -> None:
        self.server = server
        self.client = client
        self.arena = arena

    async def write(self, *wanted: bytes, tenant: bytes = b"") -> None:
        """One at a time, so that room is made in between, and until that has settled."""
        for key in wanted:
            (slot,) = (await self.client.reserve([key], tenant)).slots
            if slot is not None:
                self.arena.slot(slot)[:] = content(key)
                await self.client.commit([key], [block_checksum(content(key))])
            await self.settle()

    async def settle(self) -> None:
        """Until nothing is on its way to disk: an engine that needs a slot before that has blocks evicted unwritten."""
        await until(lambda: not self.server.store._leaving and not self.server.store.crowding)

    async def read(self, wanted: Sequence[bytes]) -> int:
        """How many blocks of the prefix there are; each must be what was written."""
        blocks = await self.client.pin(wanted)
        for key, block in zip(wanted, blocks, strict=False):
            assert bytes(self.arena.slot(block.slot)) == content(key)
            assert block.checksum == block_checksum(content(key))
        await self.client.unpin(wanted[: len(blocks)])
        await self.settle()
        return len(blocks)


@pytest.fixture
async def engine(connect: Connect) -> AsyncIterator[Callable[[StoreServer], Awaitable[Engine]]]:
    arenas: list[Arena] = []

    async def join(server: StoreServer) -> Engine:
        client = await connect(server)
        arenas.append(await client.attach(SLOT_BYTES))
        return Engine(server, client, arenas[-1])

    yield join
    for arena in arenas:
        arena.close()


Join = Callable[[StoreServer], Awaitable[Engine]]


def files(tmp_path: Path, folder: str = "disk") -> list[Path]:
    return sorted((tmp_path / folder).glob("fp-0/??/*"))


async def test_what_the_arena_gave_up_comes_back_from_disk(start: Start, engine: Join, tmp_path: Path) -> None:
    server = await start()
    one = await engine(server)
    await one.write(*keys(20))
    assert len(server.store.readable()) == 20
    for number in range(20):
        assert await one.read(keys(1, number)) == 1
    statistics = await one.client.statistics()
    assert statistics.disk_read_blocks >= 12
    assert statistics.disk_blocks == len(files(tmp_path)) == statistics.disk_written_blocks


async def test_a_prefix_longer_than_the_arena_is_pinned_as_far_as_there_are_slots(start: Start, engine: Join) -> None:
    one = await engine(await start())
    await one.write(*keys(20))
    assert await one.read(keys(6)) == 6
    assert 4 <= await one.read(keys(20)) <= SLOTS


async def test_a_block_that_has_a_file_is_not_written_again(start: Start, engine: Join) -> None:
    server = await start()
    one = await engine(server)
    await one.write(*keys(20))
    for _ in range(3):
        for number in range(16):
            await one.read(keys(1, number))
    assert (await one.client.statistics()).disk_written_blocks <= 20


async def test_no_more_blocks_leave_than_can_wait_to_be_written(start: Start, engine: Join) -> None:
    server = await start(max_waiting_writes=1)
    one = await engine(server)
    slots = (await one.client.reserve(keys(7))).slots
    for key, slot in zip(keys(7), slots, strict=True):
        assert slot is not None
        one.arena.slot(slot)[:] = content(key)
    await one.client.commit(keys(7), [block_checksum(content(key)) for key in keys(7)])
    await one.client.reserve(keys(1))
    await until(lambda: server.store.slot_statistics().free == SLOTS // 2)
    assert set(server.store.readable()) == set(keys(7))
    assert (await one.client.statistics()).disk_unkept_blocks == 0
    assert await one.read(keys(7)) == 7


async def test_files_are_bounded(start: Start, engine: Join, tmp_path: Path) -> None:
    server = await start(blocks=5)
    one = await engine(server)
    await one.write(*keys(40))
    assert server.store.disk is not None
    await asyncio.to_thread(server.store.disk._writer._pool.submit(int).result)  # type: ignore[attr-defined]
    assert len(files(tmp_path)) == 5
    assert (await one.client.statistics()).disk_evicted_blocks > 20


async def test_a_bit_flip_on_disk_is_a_miss_and_the_file_goes(start: Start, engine: Join, tmp_path: Path) -> None:
    server = await start()
    one = await engine(server)
    await one.write(*keys(12))
    for path in files(tmp_path):
        data = bytearray(path.read_bytes())
        data[-1] ^= 0x10
        path.write_bytes(data)
    on_disk = [key for key in keys(12) if not server.store.is_in_arena(key)]
    for key in on_disk:
        assert await one.read([key]) == 0
    assert set(server.store.readable()).isdisjoint(on_disk)
    statistics = await one.client.statistics()
    assert statistics.disk_damaged_files == len(on_disk) > 0
    assert (statistics.pins, statistics.writing_slots) == (0, 0)


async def test_when_the_disk_is_full_blocks_are_gone_and_nothing_else(
    start: Start, engine: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, parts: object) -> int:
        raise OSError(28, "No space left on device")

    server = await start()
    one = await engine(server)
    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", full)
        await one.write(*keys(12))
    statistics = await one.client.statistics()
    assert statistics.disk_failed_writes == 12 - len(server.store.readable()) > 0
    assert (statistics.disk_blocks, files(tmp_path)) == (0, [])
    await one.write(*keys(6, 20))
    assert (await one.client.statistics()).disk_blocks > 0


async def test_a_restarted_store_finds_its_files_with_their_names(start: Start, engine: Join) -> None:
    server = await start()
    one = await engine(server)
    await one.write(*keys(4))
    await one.client.label(dict(zip(keys(4), range(100, 104), strict=True)))
    await one.write(*keys(12, 4))
    on_disk = set(server.store.readable()) - {key for key in keys(16) if server.store.is_in_arena(key)}
    await server.close()
    again = await start()
    assert set(again.store.readable()) >= on_disk
    two = await engine(again)
    assert await two.read(keys(4)) == 4
    assert again.store.labelled(range(100, 104)) == keys(4)
    watched = await anext(two.client.watch())
    assert (
        dict(zip(watched.committed, watched.labels, strict=True)).items()
        >= dict(zip(keys(4), range(100, 104), strict=True)).items()
    )


async def test_two_stores_of_one_machine_share_no_file(start: Start, engine: Join, tmp_path: Path) -> None:
    here, there = await start(), await start()
    one, other = await engine(here), await engine(there)
    await one.write(*keys(12))
    assert await other.read(keys(1)) == 0
    assert there.store.readable() == []


async def test_watchers_hear_that_a_block_went_when_it_left_both(start: Start, engine: Join) -> None:
    server = await start(blocks=4)
    one = await engine(server)
    heard: dict[bytes, bool] = {}
    server.store.follow(heard.__setitem__)
    await one.write(*keys(30))
    assert {key for key, readable in heard.items() if readable} == set(server.store.readable())
    assert len(server.store.readable()) < 30


async def test_blocks_on_disk_are_fetched_by_another_store(start: Start, engine: Join, make_server: MakeServer) -> None:
    far, near = await start(), await make_server(slots=16)
    near.store.attach(SLOT_BYTES)
    producer, reader = await engine(far), await engine(near)
    await producer.write(*keys(3))
    await producer.client.label(dict(zip(keys(3), range(3), strict=True)))
    await producer.write(*keys(12, 3))
    assert not any(far.store.is_in_arena(key) for key in keys(3))
    ended = await reader.client.fetch("f", range(3), far.address, 5.0)
    assert (ended.outcome, ended.present_blocks) == ("ready", 3)
    assert await reader.read(keys(3)) == 3


async def test_a_tenants_blocks_on_disk_have_no_key_under_another_salt_and_keep_their_owner(
    start: Start, engine: Join
) -> None:
    """As an engine's hashes differ by salt, so do the keys; the file remembers whose it is."""
    server = await start()
    one = await engine(server)
    mine, other = tenant_of("mine"), tenant_of("other")
    await one.write(*keys(12, salt=b"m"), tenant=mine)
    assert await one.read(keys(12, salt=b"o")) == 0
    disk = server.store.disk
    assert disk is not None
    assert {disk.tenant(key) for key in disk.readable()} == {mine}
    await one.write(*keys(12, salt=b"o"), tenant=other)
    assert await one.read(keys(1, salt=b"m")) == 1
    assert server.store._slots._shares.held(mine) >= 1


async def test_a_folder_that_cannot_be_used_is_named_and_the_store_works(
    make_server: MakeServer, engine: Join, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    server = await make_server(slots=SLOTS, disk=DiskSettings(str(tmp_path / "file"), 10**6))  # type: ignore[arg-type]
    server.store.attach(SLOT_BYTES)
    await until(lambda: "store.disk" in caplog.text)
    one = await engine(server)
    await one.write(*keys(3))
    assert await one.read(keys(3)) == 3


async def test_a_wait_for_the_disk_ends_with_its_connection(start: Start, engine: Join, connect: Connect) -> None:
    server = await start()
    one = await engine(server)
    await one.write(*keys(12))
    leaver = await connect(server)
    pin = asyncio.create_task(leaver.pin(keys(2)))
    await until(lambda: server.store.slot_statistics().writing > 0)
    await leaver.close()
    await asyncio.wait([pin])
    assert pin.exception() is not None
    await until(lambda: not server.store.slot_statistics().writing and not server.store.slot_statistics().pins)


KILLED = """
import os, sys, threading
from pathlib import Path
from kvtransfer.checksum import block_checksum
from kvtransfer.disk.block_file import BlockHead
from kvtransfer.disk.folder import BlockFolder
folder = BlockFolder.claim(Path(sys.argv[1]), "fp")
payload = memoryview(bytes(1 << 20))
for number in range(10**6):
    key = number.to_bytes(4, "big") * 8
    folder.write(BlockHead(key, b"", None, block_checksum(payload), len(payload)), payload)
    if number == 5:
        print("writing", flush=True)
"""


def test_a_kill_in_mid_write_leaves_only_whole_files_behind(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.kill()
    folder = BlockFolder.claim(tmp_path, "fp")
    heads = folder.scan(1 << 20)
    assert len(heads) > 5
    for head in heads:
        folder.read(head.key, memoryview(bytearray(1 << 20)))
    assert not list(folder.folder.glob("??/*.part"))
    folder.close()
