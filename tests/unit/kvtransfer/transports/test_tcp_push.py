"""What the TCP transport does, as a source, with peers that are wrong, hostile or dying."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kvtransfer.auth import prove
from kvtransfer.framing import frame
from kvtransfer.greeting import PROTOCOL_VERSION, Challenge, Greet
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_frames import (
    Announced,
    Cancel,
    Ended,
    Join,
    Payload,
    Pull,
    Ready,
    Take,
    Want,
)
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.unit.kvtransfer.conftest import FINGERPRINT, QUICK, SECRET, SLOT_BYTES, until
from tests.unit.kvtransfer.raw_peer import GARBAGE, RawPeer
from tests.unit.kvtransfer.transports.tcp_peers import KEYS, Knock, fill, greeted, lane_of, let_in


@pytest.fixture
async def knock(transport: TcpTransport) -> AsyncIterator[Callable[[], Awaitable[RawPeer]]]:
    """Connects raw peers to the transport."""
    peers: list[RawPeer] = []

    async def connect() -> RawPeer:
        port = int(transport.address.rpartition(":")[2])
        peers.append(RawPeer(*await asyncio.open_connection("127.0.0.1", port)))
        return peers[-1]

    yield connect
    for peer in peers:
        await peer.close()


async def pull_goes_on(transport: TcpTransport) -> None:
    """Another store is served as if nothing had happened."""
    other, target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1"), Store(StoreSettings(16 * SLOT_BYTES, "unused"))
    target.attach(SLOT_BYTES)
    result = await other.pull(transport.address, "h", PullSink(target), 5.0)
    await other.close()
    assert result.state is HandoffState.READY


async def test_a_wrong_secret_is_refused_and_others_are_served(
    knock: Knock, transport: TcpTransport, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, *KEYS)
    peer = await knock()
    challenge = await peer.receive(Challenge)
    with caplog.at_level(logging.WARNING):
        peer.send(Greet(PROTOCOL_VERSION, FINGERPRINT, "raw", prove(b"wrong", challenge.nonce)))
        assert await peer.refusal() == "wrong cluster secret"
    assert await peer.is_closed()
    assert "127.0.0.1 refused: wrong cluster secret" in caplog.messages
    await pull_goes_on(transport)


@pytest.mark.parametrize("body", GARBAGE, ids=["no MessagePack", "nested without end"])
async def test_garbage_is_refused(knock: Knock, body: bytes) -> None:
    peer = await knock()
    await peer.receive(Challenge)
    peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await peer.refusal() == "frame of 542393671 bytes exceeds the maximum of 4096 bytes"
    peer = await greeted(knock)
    peer.writer.write(frame(body))
    assert (await peer.refusal()).startswith("bad frame: ")
    assert await peer.is_closed()


async def test_a_peer_that_dies_while_it_pulls_frees_the_hand_off(knock: Knock, store: Store) -> None:
    fill(store, KEYS[0])
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    assert (await peer.receive(Announced)).keys == KEYS
    peer.send(Want(1, [0, 1, 2]))
    assert (await peer.receive(Ready)).positions == [0]
    peer.send(Take(1, [0]))
    await peer.close()
    await until(lambda: store.slot_statistics().pins == 0)


async def test_a_lane_brings_what_was_taken_and_nothing_else(knock: Knock, store: Store) -> None:
    fill(store, *KEYS)
    peer = await greeted(knock)
    lane = await lane_of(peer, knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    assert (await peer.receive(Ready)).positions == [0, 1, 2]
    peer.send(Want(1, [0, 2]))
    peer.send(Take(1, [2]))
    assert await lane.receive(Payload) == Payload(1, [2], SLOT_BYTES)
    assert len(await lane.reader.readexactly(SLOT_BYTES)) == SLOT_BYTES
    assert await peer.receive(Ended) == Ended(1, "complete")
    await until(lambda: store.slot_statistics().pins == 0)


async def test_few_blocks_go_with_the_word_that_they_are_ready(store: Store) -> None:
    settings = TcpSettings(in_band_bytes=3 * SLOT_BYTES)
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=settings)
    await transport.serve(store)
    fill(store, *KEYS)

    async def connect() -> RawPeer:
        port = int(transport.address.rpartition(":")[2])
        return RawPeer(*await asyncio.open_connection("127.0.0.1", port))

    peer = await greeted(connect)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    assert (await peer.receive(Ready)).content == bytes(3 * SLOT_BYTES)
    assert await peer.receive(Ended) == Ended(1, "complete")
    await until(lambda: store.slot_statistics().pins == 0)
    await peer.close()
    await transport.close()


async def test_a_lane_of_no_session_is_refused(knock: Knock) -> None:
    lane = await let_in(await knock())
    lane.send(Join(b"guessed"))
    assert await lane.refusal() == "a lane of no session"


async def test_what_was_offered_with_the_announcement_is_not_offered_again(knock: Knock, store: Store) -> None:
    fill(store, KEYS[0])
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    assert (await peer.receive(Ready)).positions == [0]
    peer.send(Want(1, [0, 2]))
    peer.send(Take(1, []))
    owner = store.open_owner()
    store.reserve(owner, KEYS[1:])
    store.commit(owner, KEYS[1:], [0, 0])
    assert (await peer.receive(Ready)).positions == [2]
    peer.send(Take(1, []))
    assert await peer.receive(Ended) == Ended(1, "complete")
    await until(lambda: store.slot_statistics().pins == 0)


async def test_taking_what_was_not_ready_is_refused(knock: Knock, store: Store) -> None:
    fill(store, KEYS[0])
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    await peer.receive(Ready)
    peer.send(Take(1, [1]))
    assert await peer.refusal() == "a block is taken that was not ready"
    await until(lambda: store.slot_statistics().pins == 0)


async def test_a_peer_that_falls_silent_is_given_up(knock: Knock, store: Store) -> None:
    fill(store, KEYS[0])
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    async with asyncio.timeout(5.0):
        await peer.reader.read()
    await until(lambda: store.slot_statistics().pins == 0)


async def test_a_peer_that_dies_before_it_says_what_it_wants_frees_the_hand_off(knock: Knock, store: Store) -> None:
    fill(store, *KEYS)
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    await peer.close()
    await until(lambda: store.slot_statistics().pins == 0)


async def test_a_cancelled_pull_ends_and_the_connection_goes_on(knock: Knock, store: Store) -> None:
    peer = await greeted(knock)
    peer.send(Pull(1, "not announced", 60.0))
    peer.send(Cancel(1))
    peer.send(Cancel(77))
    peer.send(Pull(2, "h", 60.0))
    fill(store, *KEYS)
    assert await peer.receive(Announced) == Announced(2, KEYS)
    peer.send(Want(2, []))
    assert (await peer.receive(Ready)).positions == [0, 1, 2]
    peer.send(Take(2, []))
    assert await peer.receive(Ended) == Ended(2, "complete")


async def test_wanting_what_was_not_announced_is_refused(knock: Knock, store: Store) -> None:
    fill(store, *KEYS)
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    await peer.receive(Ready)
    peer.send(Want(1, [3]))
    assert await peer.refusal() == "a block is wanted that was not announced"
    await until(lambda: store.slot_statistics().pins == 0)


@pytest.mark.parametrize("deadline_s", [-1.0, float("nan"), 1e12])
async def test_an_unreasonable_deadline_is_refused(knock: Knock, deadline_s: float) -> None:
    peer = await greeted(knock)
    peer.send(Pull(1, "h", deadline_s))
    assert (await peer.refusal()).startswith("deadline_s is ")


async def test_a_peer_that_stops_reading_is_given_up(knock: Knock, store: Store) -> None:
    big = Store(StoreSettings(4 * 16 * 1024 * 1024, "unused"))
    big.attach(16 * 1024 * 1024)
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK)
    await transport.serve(big)
    fill(big, *KEYS)

    async def connect() -> RawPeer:
        port = int(transport.address.rpartition(":")[2])
        return RawPeer(*await asyncio.open_connection("127.0.0.1", port, limit=1024))

    peer = await greeted(connect)
    lane = await lane_of(peer, connect)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    peer.send(Want(1, [0, 1, 2]))
    await peer.receive(Ready)
    peer.send(Take(1, [0, 1, 2]))
    await until(lambda: big.slot_statistics().pins == 0)
    await peer.close()
    await lane.close()
    await transport.close()
    big.check()
