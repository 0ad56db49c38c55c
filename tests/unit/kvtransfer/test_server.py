"""What a store does with peers that are wrong, hostile or dying; everybody else goes on."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.auth import prove
from kvtransfer.errors import RequestRefused, StoreLost
from kvtransfer.framing import frame
from kvtransfer.greeting import PROTOCOL_VERSION, Challenge, Greet, Welcome
from kvtransfer.inspection import Oldest, Statistics, StoreStatistics
from kvtransfer.protocol import Reserve
from kvtransfer.server import StoreServer
from kvtransfer.transports.loopback import LoopbackNetwork
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, Connect, MakeServer, until
from tests.unit.kvtransfer.raw_peer import GARBAGE, RawPeer

KEYS = [bytes([i]) * 32 for i in range(20)]

encode = msgspec.msgpack.encode


async def stranger(server: StoreServer) -> RawPeer:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect("\0" + server.socket_name)
    return RawPeer(*await asyncio.open_unix_connection(sock=sock))


async def greeted(server: StoreServer) -> RawPeer:
    peer = await stranger(server)
    challenge = await peer.receive(Challenge)
    peer.send(Greet(PROTOCOL_VERSION, FINGERPRINT, "raw", prove(SECRET, challenge.nonce)))
    await peer.receive(Welcome)
    return peer


@pytest.fixture
async def witness(connect: Connect) -> AsyncIterator[AsyncStoreClient]:
    """A well-behaved client, whom nothing in the test may disturb."""
    client = await connect()
    await client.statistics()
    yield client
    await client.statistics()


async def greet(
    server: StoreServer, protocol: int = PROTOCOL_VERSION, fingerprint: str = FINGERPRINT, secret: bytes = SECRET
) -> str:
    """The reason a greeting is refused for."""
    peer = await stranger(server)
    challenge = await peer.receive(Challenge)
    peer.send(Greet(protocol, fingerprint, "bad", prove(secret, challenge.nonce)))
    return await peer.refusal()


@pytest.mark.usefixtures("witness")
async def test_a_wrong_secret_is_refused_and_logged(server: StoreServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert await greet(server, secret=b"wrong") == "wrong cluster secret"
    assert "a newcomer refused: wrong cluster secret" in caplog.messages


@pytest.mark.usefixtures("witness")
async def test_a_wrong_fingerprint_is_refused(server: StoreServer) -> None:
    assert await greet(server, fingerprint="other") == "KV fingerprint 'other', this store holds 'fp'"


@pytest.mark.usefixtures("witness")
async def test_a_wrong_protocol_is_refused(server: StoreServer) -> None:
    assert await greet(server, protocol=99) == f"protocol 99, this store speaks {PROTOCOL_VERSION}"


@pytest.mark.usefixtures("witness")
async def test_garbage_instead_of_a_greeting_is_refused(server: StoreServer) -> None:
    peer = await stranger(server)
    await peer.receive(Challenge)
    peer.writer.write(frame(b"\xc1garbage"))
    assert (await peer.refusal()).startswith("bad greeting: ")


@pytest.mark.usefixtures("witness")
async def test_an_http_request_is_refused_for_its_length(server: StoreServer) -> None:
    peer = await stranger(server)
    await peer.receive(Challenge)
    peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await peer.refusal() == "frame of 542393671 bytes exceeds the maximum of 4096 bytes"


@pytest.mark.usefixtures("witness")
async def test_a_request_before_the_greeting_is_refused(server: StoreServer) -> None:
    peer = await stranger(server)
    await peer.receive(Challenge)
    peer.send(Statistics(1))
    assert (await peer.refusal()).startswith("bad greeting: ")


async def test_who_does_not_greet_in_time_is_refused(make_server: MakeServer) -> None:
    peer = await stranger(await make_server(connect_s=0.05))
    await peer.receive(Challenge)
    assert await peer.refusal() == "no greeting within 0.05 s"


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("body", GARBAGE, ids=["no MessagePack", "nested without end"])
async def test_garbage_after_the_greeting_is_refused(server: StoreServer, body: bytes) -> None:
    peer = await greeted(server)
    peer.writer.write(frame(body))
    assert (await peer.refusal()).startswith("bad frame: ")


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize(
    "message",
    [
        {"type": "reserve", "id": 1, "keys": "no list"},
        {"type": "reserve", "id": 1, "keys": [1, 2]},
        {"type": "commit", "id": 1, "keys": [b"k"], "checksums": ["no number"]},
        {"type": "await_handoff", "id": 1, "handoff_id": "h", "source": None, "deadline_s": "soon"},
        {"type": "no such request", "id": 1},
        ["no map"],
    ],
)
async def test_a_request_of_the_wrong_shape_is_refused(server: StoreServer, message: object) -> None:
    peer = await greeted(server)
    peer.writer.write(frame(encode(message)))
    assert (await peer.refusal()).startswith("bad frame: ")


async def test_an_oversize_frame_is_refused_by_its_length(make_server: MakeServer) -> None:
    peer = await greeted(await make_server(max_frame_bytes=1000))
    peer.writer.write((1001).to_bytes(4, "little"))
    assert await peer.refusal() == "frame of 1001 bytes exceeds the maximum of 1000 bytes"


@pytest.mark.usefixtures("witness")
async def test_a_truncated_frame_ends_the_connection_and_frees_what_it_held(
    server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await greeted(server)
    peer.send(Reserve(1, KEYS[:3]))
    peer.writer.write(frame(encode(Statistics(2)))[:-1])
    await until(lambda: server.store.slot_statistics().writing == 3)
    await peer.close()
    await until(lambda: server.store.slot_statistics().writing == 0)
    assert "client 'raw': connection ended inside a frame" in caplog.messages


async def test_more_connections_than_allowed_are_refused(make_server: MakeServer) -> None:
    server = await make_server(max_connections=1)
    first = await greeted(server)
    second = await stranger(server)
    assert await second.refusal() == "1 connections are open already"
    await first.close()
    await until(lambda: server.connections == 0)


async def test_requests_in_one_segment_are_answered_in_order(server: StoreServer) -> None:
    peer = await greeted(server)
    peer.writer.write(b"".join(frame(encode(Statistics(number))) for number in range(100)))
    for number in range(100):
        assert (await peer.receive(StoreStatistics)).id == number
    await peer.close()


async def test_a_peer_that_does_not_read_is_not_read_from(server: StoreServer) -> None:
    peer = await greeted(server)
    peer.writer.write(frame(encode(Statistics(1))) * 20_000)
    connection = next(iter(server._reception.connections))
    async with asyncio.timeout(5):
        while connection._transport.is_reading():  # noqa: ASYNC110  (the transport announces nothing)
            await asyncio.sleep(0)
    assert connection._transport.get_write_buffer_size() < 1 << 20
    for _ in range(20_000):
        await peer.receive(StoreStatistics)
    await peer.close()


# Requests that cannot be carried out


async def test_a_second_slot_size_is_refused_and_the_connection_goes_on(connect: Connect) -> None:
    client = await connect()
    with pytest.raises(RequestRefused, match="have 4096 bytes, not 8192"):
        await client.attach(8192)
    assert (await client.attach(SLOT_BYTES)).slots == 16


@pytest.mark.parametrize("slot_bytes", [0, -1, 1 << 40])
async def test_an_impossible_slot_size_is_refused(make_server: MakeServer, connect: Connect, slot_bytes: int) -> None:
    client = await connect(await make_server())
    with pytest.raises(RequestRefused, match="cannot be cut into slots"):
        await client.attach(slot_bytes)


async def test_unequal_keys_and_checksums_are_refused(connect: Connect) -> None:
    client = await connect()
    with pytest.raises(RequestRefused, match="2 keys with 1 checksums"):
        await client.commit(KEYS[:2], [1])


@pytest.mark.parametrize("deadline_s", [-1.0, float("nan"), 1e9])
async def test_a_wait_without_a_reasonable_deadline_is_refused(connect: Connect, deadline_s: float) -> None:
    client = await connect()
    with pytest.raises(RequestRefused, match="deadline_s"):
        await asyncio.wait_for(client.await_handoff("h", None, deadline_s), 5)


async def test_too_many_waits_of_one_connection_are_refused(make_server: MakeServer, connect: Connect) -> None:
    client = await connect(await make_server(max_waits=1))
    first = asyncio.create_task(client.await_handoff("h", None, 5.0))
    await client.statistics()
    with pytest.raises(RequestRefused, match="1 waits are open"):
        await client.await_handoff("i", None, 5.0)
    first.cancel()


async def test_too_many_hand_offs_are_refused(make_server: MakeServer, connect: Connect) -> None:
    client = await connect(await make_server(max_handoffs=1))
    await client.announce("h", KEYS[:1])
    with pytest.raises(RequestRefused, match="1 hand-offs are open"):
        await client.announce("i", KEYS[:1])


# Writers and readers that go


async def commit(client: AsyncStoreClient, *keys: bytes) -> int:
    await client.reserve(keys)
    return await client.commit(keys, [0] * len(keys))


async def test_a_writer_that_dies_between_reserve_and_commit_frees_its_slots(connect: Connect) -> None:
    writer, other = await connect(), await connect()
    await writer.reserve(KEYS[:3])
    assert (await other.reserve(KEYS[:3])).slots == [None] * 3
    await writer.close()
    await _statistics_until(other, "writing_slots", 0)
    assert None not in (await other.reserve(KEYS[:3])).slots


async def test_a_connection_that_closes_drops_its_pins(connect: Connect) -> None:
    reader, other = await connect(), await connect()
    await commit(other, *KEYS[:3])
    await reader.pin(KEYS[:3])
    assert (await other.statistics()).pins == 3
    await reader.close()
    await _statistics_until(other, "pins", 0)


async def _statistics_until(client: AsyncStoreClient, name: str, value: int) -> None:
    async with asyncio.timeout(5):
        while getattr(await client.statistics(), name) != value:
            pass


async def test_two_writers_of_one_key_at_once_get_one_slot(connect: Connect) -> None:
    one, two = await connect(), await connect()
    slots = await asyncio.gather(one.reserve(KEYS[:1]), two.reserve(KEYS[:1]))
    assert sorted(reserved.slots == [None] for reserved in slots) == [False, True]
    assert await one.commit(KEYS[:1], [0]) + await two.commit(KEYS[:1], [0]) == 1


async def test_a_full_arena_says_so_and_a_hand_off_without_room_fails_promptly(connect: Connect) -> None:
    producer, reader = await connect(), await connect()
    await producer.announce("h", KEYS)
    reserved = await producer.reserve(KEYS)
    assert (reserved.slots.count(None), reserved.full) == (4, 4)
    await producer.commit(KEYS[:16], [0] * 16)
    await producer.conclude("h")
    ended = await reader.await_handoff("h", None, 5.0)
    assert (ended.outcome, ended.announced_blocks, ended.present_blocks) == ("failed", 20, 16)
    await reader.release("h")
    statistics = await reader.statistics()
    assert (statistics.pins, statistics.failed_handoffs) == (0, 1)
    assert (await producer.reserve(KEYS[16:])).full == 0


async def test_statistics_tell_the_truth(connect: Connect) -> None:
    client = await connect()
    await client.reserve(KEYS[:5])
    await client.commit(KEYS[:4], [0] * 4)
    await client.pin(KEYS[:2])
    await client.distrust(KEYS[2:3])
    await client.announce("h", KEYS[3:4])
    statistics = await client.statistics()
    assert statistics.oldest_pin is not None
    assert statistics.oldest_writing is not None
    assert statistics == StoreStatistics(
        id=statistics.id,
        epoch=client.epoch,
        slots=16,
        slot_bytes=SLOT_BYTES,
        free_slots=12,
        writing_slots=1,
        committed_slots=0,
        pinned_slots=3,
        pins=3,
        handoffs=1,
        connections=1,
        committed_blocks=4,
        distrusted_blocks=1,
        failed_handoffs=0,
        late_handoffs=0,
        evicted={},
        checksum_failures={"load": 1},
        traffic=[],
        oldest_pin=Oldest("client 'test'", statistics.oldest_pin.age_s),
        oldest_writing=Oldest("client 'test'", statistics.oldest_writing.age_s),
    )


# The server's own end


async def test_closing_ends_every_connection_and_wait(make_server: MakeServer, connect: Connect) -> None:
    server = await make_server()
    client = await connect(server)
    wait = asyncio.create_task(client.await_handoff("h", None, 60.0))
    await client.statistics()
    await server.close()
    with pytest.raises(StoreLost):
        await wait
    assert server.connections == 0
    with pytest.raises(StoreLost):
        await connect(server)


async def test_a_name_that_is_taken_is_an_error(server: StoreServer) -> None:
    other = StoreServer(server._settings, SECRET, FINGERPRINT, LoopbackNetwork().open())
    with pytest.raises(OSError, match="in use"):
        await other.start()
    await other.close()


async def test_its_repr_tells_the_truth(server: StoreServer) -> None:
    assert repr(server).startswith(f"<StoreServer @{server.socket_name} loopback://1 connections=0 <Store ")


async def test_hand_offs_past_their_time_are_swept(make_server: MakeServer, connect: Connect) -> None:
    client = await connect(server := await make_server(handoff_ttl_s=0.01, sweep_s=0.01))
    server.store.attach(SLOT_BYTES)
    await commit(client, KEYS[0])
    await client.announce("h", KEYS[:1])
    await _statistics_until(client, "pins", 0)
