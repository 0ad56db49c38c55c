"""The asyncio client: waits that overtake nothing, end in time, and leave nothing when they are cancelled."""

import asyncio

import pytest

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.checksum import block_checksum
from kvtransfer.errors import StoreLost, StoreRefused
from kvtransfer.inspection import Traffic
from kvtransfer.server import StoreServer
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, Connect, MakeServer, until

KEYS = [bytes([i]) * 32 for i in range(8)]


async def commit(client: AsyncStoreClient, *keys: bytes) -> None:
    await client.reserve(keys)
    await client.commit(keys, [0] * len(keys))


async def test_a_wait_on_this_node_ends_when_the_last_block_is_committed(connect: Connect) -> None:
    producer, reader = await connect(), await connect()
    wait = asyncio.create_task(reader.await_handoff("h", None, 5.0))
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS[:-1])
    assert (await reader.statistics()).pins == len(KEYS) - 1
    assert not wait.done()
    await commit(producer, KEYS[-1])
    ended = await wait
    assert (ended.outcome, ended.announced_blocks, ended.present_blocks) == ("ready", 8, 8)
    assert (await reader.statistics()).pins == 8
    await reader.release("h")
    assert (await reader.statistics()).pins == 0


async def test_the_store_s_own_address_means_this_node(connect: Connect) -> None:
    client = await connect()
    await commit(client, KEYS[0])
    await client.announce("h", KEYS[:1])
    ended = await client.await_handoff("h", client.address, 5.0)
    assert (ended.outcome, ended.pulled_blocks) == ("ready", 0)


async def test_a_wait_from_another_store_brings_the_blocks_here(make_server: MakeServer, connect: Connect) -> None:
    far = await make_server()
    producer, reader = await connect(far), await connect()
    arena = await producer.attach(SLOT_BYTES)
    wait = asyncio.create_task(reader.await_handoff("h", far.address, 5.0))
    await producer.announce("h", KEYS)
    for key, slot in zip(KEYS, (await producer.reserve(KEYS)).slots, strict=True):
        assert slot is not None
        arena.slot(slot)[:] = key * (SLOT_BYTES // 32)
        await producer.commit([key], [block_checksum(arena.slot(slot))])
    ended = await wait
    assert (ended.outcome, ended.present_blocks, ended.pulled_blocks) == ("ready", 8, 8)
    assert ended.pulled_bytes == 8 * SLOT_BYTES
    here = await reader.attach(SLOT_BYTES)
    blocks = await reader.pin(KEYS)
    assert [block_checksum(here.slot(block.slot)) for block in blocks] == [block.checksum for block in blocks]
    assert [bytes(here.slot(block.slot)[:32]) for block in blocks] == KEYS
    await reader.unpin(KEYS)
    assert (await reader.statistics()).pins == 8
    await reader.release("h")
    pulled, pushed = await reader.statistics(), await producer.statistics()
    assert (pulled.pins, pulled.traffic) == (0, [Traffic("pulled", "loopback", 8, 8 * SLOT_BYTES)])
    assert (pushed.pins, pushed.traffic) == (0, [Traffic("pushed", "loopback", 8, 8 * SLOT_BYTES)])
    arena.close()
    here.close()


async def test_a_fetch_brings_labelled_blocks_here_and_keeps_their_labels(
    make_server: MakeServer, connect: Connect
) -> None:
    far = await make_server()
    far.store.attach(SLOT_BYTES)
    owner, reader = await connect(far), await connect()
    await commit(owner, *KEYS)
    await owner.label(dict(zip(KEYS[:5], range(5), strict=True)))
    ended = await reader.fetch("f", range(8), far.address, 5.0)
    assert (ended.outcome, ended.announced_blocks, ended.present_blocks, ended.pulled_blocks) == ("ready", 5, 5, 5)
    assert (await reader.statistics()).pins == 5
    assert (await owner.statistics()).pins == 0
    await reader.release("f")
    assert (await reader.statistics()).pins == 0
    assert await reader.label(dict(zip(KEYS, range(8), strict=True))) == 0


async def test_a_fetch_of_what_nobody_has_brings_nothing(make_server: MakeServer, connect: Connect) -> None:
    far = await make_server()
    ended = await (await connect()).fetch("f", range(8), far.address, 5.0)
    assert (ended.outcome, ended.announced_blocks, ended.present_blocks) == ("ready", 0, 0)


async def test_a_fetch_from_a_store_that_is_gone_fails(make_server: MakeServer, connect: Connect) -> None:
    far = await make_server()
    address = far.address
    await far.close()
    ended = await (await connect()).fetch("f", range(8), address, 5.0)
    assert (ended.outcome, ended.present_blocks) == ("failed", 0)


async def test_a_released_fetch_ends(server: StoreServer, make_server: MakeServer, connect: Connect) -> None:
    far, reader = await make_server(), await connect()
    far.store.attach(SLOT_BYTES)
    owner = await connect(far)
    await commit(owner, *KEYS)
    await owner.label(dict(zip(KEYS, range(8), strict=True)))
    await reader.reserve(KEYS[:1])
    fetch = asyncio.create_task(reader.fetch("f", range(8), far.address, 5.0))
    await until(lambda: server.store.slot_statistics().committed + server.store.slot_statistics().pinned == 7)
    fetch.cancel()
    await asyncio.wait([fetch])
    await reader.statistics()
    await until(lambda: server.store.slot_statistics().pins == 0)


async def test_two_waits_for_the_same_blocks_move_each_block_to_one_slot(
    make_server: MakeServer, connect: Connect
) -> None:
    far = await make_server()
    far.store.attach(SLOT_BYTES)
    producer, reader = await connect(far), await connect()
    for name in ("a", "b"):
        await producer.announce(name, KEYS)
    waits = [asyncio.create_task(reader.await_handoff(name, far.address, 5.0)) for name in ("a", "b")]
    await commit(producer, *KEYS)
    assert [(await wait).outcome for wait in waits] == ["ready", "ready"]
    statistics = await reader.statistics()
    assert (statistics.pinned_slots, statistics.pins) == (8, 16)


async def test_a_producer_that_goes_fails_the_wait_at_once(connect: Connect) -> None:
    producer, reader = await connect(), await connect()
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS[:3])
    wait = asyncio.create_task(reader.await_handoff("h", None, 60.0))
    await reader.statistics()
    await producer.close()
    ended = await wait
    assert (ended.outcome, ended.present_blocks) == ("failed", 3)
    assert ended.reason == "the producer ended with blocks missing"


async def test_a_producer_that_announced_nothing_fails_waits_here_and_from_elsewhere_at_once(
    make_server: MakeServer, connect: Connect
) -> None:
    far = await make_server()
    producer, neighbour, reader = await connect(far), await connect(far), await connect()
    waits = [
        asyncio.create_task(neighbour.await_handoff("h", None, 60.0)),
        asyncio.create_task(reader.await_handoff("h", far.address, 60.0)),
    ]
    await neighbour.statistics()
    await producer.conclude("h")
    assert [((await wait).outcome, (await wait).announced_blocks) for wait in waits] == [("failed", 0)] * 2


async def test_a_source_that_cannot_be_reached_fails_the_wait(connect: Connect) -> None:
    ended = await (await connect()).await_handoff("h", "loopback://nobody", 60.0)
    assert (ended.outcome, ended.announced_blocks) == ("failed", 0)


async def test_a_wait_ends_late_with_what_is_present(connect: Connect) -> None:
    producer, reader = await connect(), await connect()
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS[:3])
    ended = await reader.await_handoff("h", None, 0.05)
    assert (ended.outcome, ended.present_blocks, ended.reason) == ("late", 3, "not complete in time")
    assert 0.04 <= ended.waited_s < 5.0
    await reader.release("h")
    await commit(producer, *KEYS[3:])
    statistics = await reader.statistics()
    assert (statistics.pins, statistics.late_handoffs) == (0, 1)


async def test_a_wait_for_what_nobody_announces_ends_late(connect: Connect) -> None:
    ended = await (await connect()).await_handoff("h", None, 0.0)
    assert (ended.outcome, ended.announced_blocks, ended.reason) == ("late", 0, "not announced in time")


async def test_cancelling_a_wait_releases_it(server: StoreServer, connect: Connect) -> None:
    producer, reader = await connect(), await connect()
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS[:3])
    wait = asyncio.create_task(reader.await_handoff("h", None, 60.0))
    await reader.statistics()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    await until(lambda: not server._reception.tasks)
    assert (await reader.statistics()).pins == 0
    await reader.release("h")
    await commit(producer, *KEYS[3:])
    assert (await reader.statistics()).pins == 0


async def test_cancelling_a_wait_that_just_ended_drops_its_pins(server: StoreServer, connect: Connect) -> None:
    reader = await connect()
    await commit(reader, *KEYS)
    await reader.announce("h", KEYS)
    wait = asyncio.create_task(reader.await_handoff("h", None, 60.0))
    await until(lambda: server.store._handoffs.open_count == 0)
    wait.cancel()
    await asyncio.wait([wait])
    assert (await reader.statistics()).pins == 0


async def test_a_connection_that_goes_while_waiting_leaves_nothing(server: StoreServer, connect: Connect) -> None:
    producer, reader = await connect(), await connect()
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS[:3])
    wait = asyncio.create_task(reader.await_handoff("h", None, 60.0))
    await reader.statistics()
    await reader.close()
    with pytest.raises(StoreLost, match="the connection is closed"):
        await wait
    await until(lambda: not server._reception.tasks)
    assert (await producer.statistics()).pins == 0


async def test_requests_overtake_a_wait(connect: Connect) -> None:
    client = await connect()
    wait = asyncio.create_task(client.await_handoff("h", None, 60.0))
    answers = await asyncio.gather(*(client.reserve([key]) for key in KEYS))
    assert sorted(slot for answer in answers for slot in answer.slots if slot is not None) == list(range(8))
    assert not wait.done()
    wait.cancel()


async def test_every_request_has_its_answer(connect: Connect) -> None:
    client = await connect()
    await client.reserve(KEYS[:3])
    assert await client.commit(KEYS[:2], [0, 0]) == 2
    assert await client.abandon(KEYS[:3]) == 1
    await client.announce("h", KEYS[:3])
    await client.conclude("h")
    assert len(await client.pin(KEYS)) == 2
    assert await client.distrust(KEYS) == 2
    assert await client.unpin(KEYS) == 2
    assert (await client.statistics()).pins == 0


async def test_who_is_not_let_in_hears_why(server: StoreServer) -> None:
    with pytest.raises(StoreRefused, match="wrong cluster secret"):
        await AsyncStoreClient.connect(server.socket_name, FINGERPRINT, "test", b"wrong", 5.0)
    with pytest.raises(StoreRefused, match="KV fingerprint"):
        await AsyncStoreClient.connect(server.socket_name, "other", "test", SECRET, 5.0)
    await until(lambda: server.connections == 0)


async def test_nobody_at_the_name_is_lost() -> None:
    with pytest.raises(StoreLost):
        await AsyncStoreClient.connect("baton-test-nobody", FINGERPRINT, "test", SECRET, 1.0)


async def test_the_end_of_the_store_is_noticed(make_server: MakeServer, connect: Connect) -> None:
    server = await make_server()
    client = await connect(server)
    await server.close()
    async with asyncio.timeout(5):
        await client.until_lost()
    assert client.is_lost
    with pytest.raises(StoreLost):
        await client.statistics()


async def test_a_pull_waits_for_a_block_that_is_being_written_here(make_server: MakeServer, connect: Connect) -> None:
    far = await make_server()
    far.store.attach(SLOT_BYTES)
    producer, writer, reader = await connect(far), await connect(), await connect()
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS)
    await writer.reserve(KEYS[:1])
    wait = asyncio.create_task(reader.await_handoff("h", far.address, 5.0))
    while sum(each.blocks for each in (await reader.statistics()).traffic) < 7:
        pass
    assert not wait.done()
    await writer.commit(KEYS[:1], [0])
    ended = await wait
    assert (ended.outcome, ended.present_blocks, ended.pulled_blocks) == ("ready", 8, 7)


async def test_a_pull_is_late_when_a_block_is_being_written_here_for_too_long(
    make_server: MakeServer, connect: Connect
) -> None:
    far = await make_server()
    far.store.attach(SLOT_BYTES)
    producer, writer, reader = await connect(far), await connect(), await connect()
    await producer.announce("h", KEYS)
    await commit(producer, *KEYS)
    await writer.reserve(KEYS[:1])
    ended = await reader.await_handoff("h", far.address, 0.3)
    assert (ended.outcome, ended.present_blocks) == ("late", 7)
