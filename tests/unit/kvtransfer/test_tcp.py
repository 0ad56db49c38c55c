"""What the TCP transport does with peers that are wrong, hostile or dying, on either side of a connection."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kvtransfer.auth import prove
from kvtransfer.checksum import block_checksum
from kvtransfer.framing import frame
from kvtransfer.greeting import PROTOCOL_VERSION, Challenge, Greet, Welcome
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.tcp import TcpTransport
from kvtransfer.tcp_frames import Announced, Block, Cancel, Ended, Pull, Want
from kvtransfer.tcp_settings import TcpSettings
from kvtransfer.transport import HandoffState, PullResult
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, until
from tests.unit.kvtransfer.raw_peer import RawPeer

KEYS = [bytes([i]) * 32 for i in range(3)]
QUICK = TcpSettings(stall_s=0.3, quiesce_s=0.1)


@pytest.fixture
def store() -> Store:
    store = Store(StoreSettings(16 * SLOT_BYTES, "unused"))
    store.attach(SLOT_BYTES)
    return store


@pytest.fixture
async def transport(store: Store) -> AsyncIterator[TcpTransport]:
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK)
    await transport.serve(store)
    yield transport
    await transport.close()
    store.check()
    assert store.slot_statistics().pins == store._handoffs.pins
    assert store.slot_statistics().writing == 0


def fill(store: Store, *keys: bytes) -> None:
    """Commit blocks of a hand-off `h` of all KEYS."""
    owner = store.open_owner()
    store.announce(owner, "h", KEYS)
    assert store.arena is not None
    for key, slot in zip(keys, store.reserve(owner, keys).slots, strict=True):
        assert slot is not None
        store.commit(owner, [key], [block_checksum(store.arena.slot(slot))])


# As the source


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


Knock = Callable[[], Awaitable[RawPeer]]


async def greeted(knock: Knock) -> RawPeer:
    peer = await knock()
    challenge = await peer.receive(Challenge)
    peer.send(Greet(PROTOCOL_VERSION, FINGERPRINT, "raw", prove(SECRET, challenge.nonce)))
    await peer.receive(Welcome)
    return peer


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
    assert "a newcomer refused: wrong cluster secret" in caplog.messages
    await pull_goes_on(transport)


async def test_garbage_is_refused(knock: Knock) -> None:
    peer = await knock()
    await peer.receive(Challenge)
    peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await peer.refusal() == "frame of 542393671 bytes exceeds the maximum of 4096 bytes"
    peer = await greeted(knock)
    peer.writer.write(frame(b"\xc1garbage"))
    assert (await peer.refusal()).startswith("bad frame: ")
    assert await peer.is_closed()


async def test_a_peer_that_dies_while_it_pulls_frees_the_hand_off(knock: Knock, store: Store) -> None:
    fill(store, KEYS[0])
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    assert (await peer.receive(Announced)).keys == KEYS
    peer.send(Want(1, [0, 1, 2]))
    await peer.receive(Block)
    await peer.close()
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
    assert await peer.receive(Ended) == Ended(2, "complete")


async def test_wanting_what_was_not_announced_is_refused(knock: Knock, store: Store) -> None:
    fill(store, *KEYS)
    peer = await greeted(knock)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
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
    reader, writer = await asyncio.open_connection("127.0.0.1", int(transport.address.rpartition(":")[2]), limit=1024)
    peer = RawPeer(reader, writer)
    challenge = await peer.receive(Challenge)
    peer.send(Greet(PROTOCOL_VERSION, FINGERPRINT, "raw", prove(SECRET, challenge.nonce)))
    await peer.receive(Welcome)
    peer.send(Pull(1, "h", 60.0))
    await peer.receive(Announced)
    peer.send(Want(1, [0, 1, 2]))
    await until(lambda: big.slot_statistics().pins == 0)
    await peer.close()
    await transport.close()
    big.check()


# As the destination


StartPull = Callable[..., "asyncio.Task[PullResult]"]


class FakeSource:
    """A listening peer whose connections a test answers by hand."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[RawPeer] = asyncio.Queue()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.put_nowait(RawPeer(reader, writer))

    async def pulled(self) -> RawPeer:
        """A greeted peer that got `Pull` 1, announced KEYS and was told `Want`."""
        peer = await self.peers.get()
        peer.send(Challenge(PROTOCOL_VERSION, b"n" * 32))
        await peer.receive(Greet)
        peer.send(Welcome("", self.address))
        await peer.receive(Pull)
        peer.send(Announced(1, KEYS))
        assert await peer.receive(Want) == Want(1, [0, 1, 2])
        return peer


@pytest.fixture
async def fake() -> AsyncIterator[FakeSource]:
    fake = FakeSource()
    await fake.start()
    yield fake
    fake.server.close()


@pytest.fixture
async def start_pull(transport: TcpTransport, store: Store, fake: FakeSource) -> AsyncIterator[StartPull]:
    """Starts pulls from `fake`; in the end every slot the transport reserved is committed or abandoned."""
    sinks: list[CarefulSink] = []

    async def pull(deadline_s: float) -> PullResult:
        sink = CarefulSink(store)
        try:
            return await transport.pull(fake.address, "h", sink, deadline_s)
        finally:
            sink.close()
            sinks.append(sink)

    yield lambda deadline_s=10.0: asyncio.create_task(pull(deadline_s))
    await transport.close()
    assert [sink.open for sink in sinks] == [set() for _ in sinks]


class CarefulSink(PullSink):
    """Knows which slots the transport still has."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.open: set[bytes] = set()

    def reserve(self, key: bytes) -> memoryview | None:
        self.open.add(key)
        return super().reserve(key)

    def commit(self, key: bytes, checksum: int) -> None:
        self.open.remove(key)
        super().commit(key, checksum)

    def abandon(self, key: bytes) -> None:
        self.open.remove(key)
        super().abandon(key)


async def failed(pull: "asyncio.Task[PullResult]", peer: RawPeer) -> str:
    """Why the pull failed; its connection is closed."""
    async with asyncio.timeout(5):
        result = await pull
    assert result.state is HandoffState.FAILED
    await peer.reader.read()
    await peer.close()
    return result.reason


@pytest.mark.parametrize("payload_bytes", [-1, 0, SLOT_BYTES - 1, SLOT_BYTES + 1, 1 << 40])
async def test_a_payload_of_the_wrong_length_closes_the_connection(
    fake: FakeSource, start_pull: StartPull, payload_bytes: int
) -> None:
    pull = start_pull()
    peer = await fake.pulled()
    peer.send(Block(1, 0, 0, payload_bytes))
    assert f"a payload of {payload_bytes} bytes" in await failed(pull, peer)


async def test_a_block_nobody_asked_for_closes_the_connection(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer = await fake.pulled()
    peer.send(Block(1, 3, 0, SLOT_BYTES))
    assert "position 3 was not asked for" in await failed(pull, peer)


async def test_a_source_that_dies_inside_a_block_abandons_its_slot(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer = await fake.pulled()
    peer.send(Block(1, 0, 0, SLOT_BYTES))
    peer.writer.write(b"x" * (SLOT_BYTES - 1))
    await peer.close()
    assert "inside a frame" in await failed(pull, peer)


async def test_a_source_that_stalls_inside_a_block_is_given_up_by_the_deadline(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    pull = start_pull(0.1)
    peer = await fake.pulled()
    peer.send(Block(1, 0, 0, SLOT_BYTES))
    peer.writer.write(b"x")
    result = await pull
    assert (result.state, result.received_blocks) == (HandoffState.LATE, 0)
    assert store.slot_statistics().free == 16
    await peer.close()


async def test_cancelling_inside_a_block_waits_for_it_and_frees_its_slot(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    pull = start_pull()
    peer = await fake.pulled()
    peer.send(Block(1, 0, 0, SLOT_BYTES))
    peer.writer.write(b"x")
    await until(lambda: store.slot_statistics().writing == 1)
    pull.cancel()
    await peer.receive(Cancel)
    assert store.slot_statistics().writing == 1
    peer.writer.write(b"x" * (SLOT_BYTES - 1))
    with pytest.raises(asyncio.CancelledError):
        await pull
    assert store.slot_statistics().free == 16
    await peer.close()


async def test_blocks_of_a_pull_that_is_over_are_read_and_dropped(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    first = start_pull()
    peer = await fake.pulled()
    first.cancel()
    await peer.receive(Cancel)
    peer.send(Block(1, 0, 0, SLOT_BYTES))
    peer.writer.write(b"x" * SLOT_BYTES)
    second = start_pull()
    assert (await peer.receive(Pull)).pull == 2
    peer.send(Announced(2, []))
    assert await peer.receive(Want) == Want(2, [])
    peer.send(Ended(2, "complete"))
    assert (await second).state is HandoffState.READY
    await peer.close()


async def test_a_source_that_claims_too_much_is_found_out(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer = await fake.pulled()
    peer.send(Ended(1, "complete"))
    result = await pull
    assert (result.state, result.reason) == (HandoffState.FAILED, "3 blocks never came")
    await peer.close()


async def test_a_source_that_refuses_us_says_why(store: Store) -> None:
    source = TcpTransport(b"other", FINGERPRINT, "127.0.0.1")
    await source.serve(store)
    target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1")
    result = await target.pull(source.address, "h", PullSink(store), 5.0)
    assert result.state is HandoffState.FAILED
    assert result.reason.endswith("wrong cluster secret")
    await target.close()
    await source.close()


async def test_a_source_that_never_greets_fails_the_pull(fake: FakeSource, store: Store) -> None:
    target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", connect_s=0.05)
    result = await target.pull(fake.address, "h", PullSink(store), 5.0)
    assert (result.state, result.received_blocks) == (HandoffState.FAILED, 0)
    await (await fake.peers.get()).close()
    await target.close()


async def test_a_peer_gets_no_more_connections_than_streams(transport: TcpTransport, store: Store) -> None:
    target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", streams=2)
    sinks = [PullSink(store) for _ in range(6)]
    pulls = [asyncio.create_task(target.pull(transport.address, "h", sink, 5.0)) for sink in sinks]
    await until(lambda: transport._accepted == 2)
    fill(store, *KEYS)
    assert {(await pull).state for pull in pulls} == {HandoffState.READY}
    assert transport._accepted == 2
    for sink in sinks:
        sink.close()
    await target.close()
    await until(lambda: transport._accepted == 0)
