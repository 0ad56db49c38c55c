"""What people see of a store and do to it: its slots, dropping blocks, verifying them."""

import asyncio

import pytest
import xxhash

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.arena import Arena
from kvtransfer.checksum import block_checksum
from kvtransfer.client import StoreClient
from kvtransfer.errors import RequestRefused
from kvtransfer.inspection import SlotLine
from kvtransfer.seal import Seal
from kvtransfer.server import StoreServer
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, Connect

KEYS = [bytes([i]) * 32 for i in range(8)]


async def fill(client: AsyncStoreClient, *keys: bytes) -> Arena:
    """Write blocks that are sound."""
    arena = await client.attach(SLOT_BYTES)
    for key, slot in zip(keys, (await client.reserve(keys)).slots, strict=True):
        assert slot is not None
        arena.slot(slot)[:] = key[:1] * SLOT_BYTES
        await client.commit([key], [block_checksum(arena.slot(slot))])
    return arena


def without_age(line: SlotLine) -> tuple[object, ...]:
    assert 0.0 <= line.age_s < 60.0
    return (line.slot, line.key, line.state, line.pins, line.label, line.writer)


async def test_slots_are_listed_with_who_uses_them(connect: Connect) -> None:
    client = await connect()
    await fill(client, *KEYS[:3])
    await client.pin(KEYS[:1])
    await client.pin(KEYS[:1])
    await client.label({KEYS[1]: 77})
    await client.distrust(KEYS[2:3])
    await client.reserve(KEYS[3:4])
    page = await client.slots(0)
    assert (page.slots, page.slot_bytes, page.next_slot) == (16, SLOT_BYTES, None)
    assert [without_age(line) for line in page.lines] == [
        (0, KEYS[0], "pinned", 2, None, ""),
        (1, KEYS[1], "committed", 0, 77, ""),
        (2, KEYS[3], "writing", 0, None, "client 'test'"),
    ]
    assert [line.slot for line in (await client.slots(2)).lines] == [2]
    assert (await client.slots(99)).lines == []


async def test_what_is_in_use_is_not_dropped(connect: Connect) -> None:
    client = await connect()
    await fill(client, *KEYS[:3])
    await client.pin(KEYS[:1])
    await client.reserve(KEYS[3:4])
    dropped = await client.drop(KEYS)
    assert (dropped.dropped, dropped.in_use) == (2, 2)
    statistics = await client.statistics()
    assert (statistics.evicted, statistics.pinned_slots, statistics.writing_slots) == ({"dropped": 2}, 1, 1)


async def test_corrupt_blocks_are_found_and_forgotten(connect: Connect) -> None:
    client = await connect()
    arena = await fill(client, *KEYS[:4])
    await client.pin(KEYS[:1])
    for slot in (0, 2):
        arena.slot(slot)[5] ^= 1
    verified = await client.verify(0)
    assert (verified.looked_at, verified.corrupt, verified.next_slot) == (4, [KEYS[0], KEYS[2]], None)
    again = await client.verify(0)
    assert (again.looked_at, again.corrupt) == (2, [])
    statistics = await client.statistics()
    assert (statistics.checksum_failures, statistics.distrusted_blocks) == ({"verify": 2}, 2)


async def test_verifying_counts_as_no_use(connect: Connect) -> None:
    client = await connect()
    await fill(client, *KEYS)
    await client.verify(0)
    assert (await client.statistics()).pins == 0


async def test_a_slot_that_changed_hands_is_not_judged(connect: Connect, server: StoreServer) -> None:
    client = await connect()
    await fill(client, *KEYS[:2])
    first, second = server.store.readable_slots(range(2))
    await client.drop(KEYS[:1])
    await fill(client, *KEYS[:1])
    await client.pin(KEYS[1:2])
    assert (server.store.still_holds(first), server.store.still_holds(second)) == (False, True)


async def test_what_is_sound_is_for_the_first_engine_to_say_that_says_it(connect: Connect, server: StoreServer) -> None:
    client = await connect()
    half = SLOT_BYTES // 2 - 8
    slot = bytearray(b"k" * SLOT_BYTES)
    digests = [xxhash.xxh3_64_intdigest(slot[head * half : (head + 1) * half], head) for head in range(2)]
    for head, digest in enumerate(digests):
        slot[2 * half + 8 * head : 2 * half + 8 * head + 8] = digest.to_bytes(8, "little")
    for seal in (Seal(2, half), Seal()):
        with await asyncio.to_thread(StoreClient.connect, server.socket_name, FINGERPRINT, "engine", SECRET) as engine:
            (await asyncio.to_thread(engine.attach, SLOT_BYTES, seal)).close()
    arena = await client.attach(SLOT_BYTES)
    await client.reserve(KEYS[:3])
    for index in range(3):
        arena.slot(index)[:] = slot
    await client.commit(KEYS[:3], [sum(digests) % 2**64] * 3)
    arena.slot(1)[half - 1] ^= 1
    arena.slot(2)[2 * half] ^= 1
    assert (await client.verify(0)).corrupt == KEYS[1:3]


async def test_a_seal_that_does_not_fit_into_a_slot_is_refused(server: StoreServer) -> None:
    engine = await asyncio.to_thread(StoreClient.connect, server.socket_name, FINGERPRINT, "engine", SECRET)
    with engine, pytest.raises(RequestRefused, match="slots of 4096 bytes cannot bear Seal"):
        await asyncio.to_thread(engine.attach, SLOT_BYTES, Seal(2, SLOT_BYTES // 2))


async def test_an_empty_store_has_nothing_to_verify(connect: Connect) -> None:
    client = await connect()
    verified = await client.verify(0)
    assert (verified.looked_at, verified.corrupt, verified.next_slot) == (0, [], None)
