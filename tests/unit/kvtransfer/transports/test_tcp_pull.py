"""What the TCP transport does, as a destination, with sources that are wrong, hostile or dying."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from kvtransfer.pulling import PullSink
from kvtransfer.store import Store
from kvtransfer.transport import Asked, HandoffState, Medium, PullResult
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_frames import (
    Announced,
    Cancel,
    Ended,
    Payload,
    Pull,
    Ready,
    Session,
    Take,
    Want,
)
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, until
from tests.unit.kvtransfer.raw_peer import RawPeer
from tests.unit.kvtransfer.transports.tcp_peers import KEYS, FakeSource, fill

StartPull = Callable[..., "asyncio.Task[PullResult]"]
LABELS = [7, 8]


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

    async def pull(deadline_s: float, asked: Asked) -> PullResult:
        sink = CarefulSink(store)
        try:
            return await transport.pull(fake.address, asked, sink, deadline_s)
        finally:
            sink.close()
            sinks.append(sink)

    yield lambda deadline_s=10.0, asked="h": asyncio.create_task(pull(deadline_s, asked))
    await transport.close()
    assert [sink.open for sink in sinks] == [set() for _ in sinks]


class CarefulSink(PullSink):
    """Knows which slots the transport still has."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.open: set[bytes] = set()

    def reserve(self, keys: Sequence[bytes]) -> Sequence[memoryview | None]:
        self.open.update(keys)
        return super().reserve(keys)

    def commit(self, keys: Sequence[bytes], checksums: Sequence[int], via: Medium) -> None:
        self.open.difference_update(keys)
        super().commit(keys, checksums, via)

    def abandon(self, keys: Sequence[bytes]) -> None:
        self.open.difference_update(keys)
        super().abandon(keys)


async def failed(pull: "asyncio.Task[PullResult]", *peers: RawPeer) -> str:
    """Why the pull failed; its connections are closed."""
    async with asyncio.timeout(5):
        result = await pull
    assert result.state is HandoffState.FAILED
    for peer in peers:
        with contextlib.suppress(ConnectionError):
            await peer.reader.read()
        await peer.close()
    return result.reason


@pytest.mark.parametrize("block_bytes", [-1, 0, SLOT_BYTES - 1, SLOT_BYTES + 1, 1 << 40])
async def test_a_payload_of_the_wrong_length_closes_the_connection(
    fake: FakeSource, start_pull: StartPull, block_bytes: int
) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    lane.send(Payload(1, [0], block_bytes))
    assert f"a payload of {block_bytes} bytes" in await failed(pull, peer, lane)


async def test_a_block_nobody_took_closes_the_connection(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    lane.send(Payload(1, [2], SLOT_BYTES))
    assert "position 2 was not asked for" in await failed(pull, peer, lane)


async def test_a_block_that_comes_twice_closes_the_connection(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    for _ in range(2):
        lane.send(Payload(1, [0], SLOT_BYTES))
        lane.writer.write(b"x" * SLOT_BYTES)
    assert "position 0 was not asked for" in await failed(pull, peer, lane)


async def test_a_second_announcement_of_a_pull_closes_the_connection(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    peer.send(Announced(1, []))
    assert "blocks are announced twice" in await failed(pull, peer, lane)


async def test_more_blocks_than_were_asked_for_close_the_connection(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull(asked=LABELS)
    peer = await fake.controls.get()
    peer.send(Session(b"session"))
    await peer.receive(Pull)
    peer.send(Announced(1, KEYS))
    assert "3 blocks are announced, 2 were asked for" in await failed(pull, peer)


@pytest.mark.parametrize("ready", [Ready(1, [3], [0], [0]), Ready(1, [0, 0], [0, 0], [0, 0]), Ready(1, [0], [], [0])])
async def test_an_offer_that_makes_no_sense_closes_the_connection(
    fake: FakeSource, start_pull: StartPull, ready: Ready
) -> None:
    pull = start_pull()
    peer, lane = await fake.pulled()
    peer.send(ready)
    await failed(pull, peer, lane)


async def test_garbage_on_a_lane_closes_the_connection(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    lane.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert "exceeds the maximum" in await failed(pull, peer, lane)


async def test_a_source_that_dies_inside_a_block_abandons_its_slot(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    lane.send(Payload(1, [0], SLOT_BYTES))
    lane.writer.write(b"x" * (SLOT_BYTES - 1))
    await lane.close()
    assert "inside a frame" in await failed(pull, peer)


async def test_a_source_that_stalls_inside_a_block_is_given_up(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    pull = start_pull()
    peer, lane = await fake.taken()
    lane.send(Payload(1, [0], SLOT_BYTES))
    lane.writer.write(b"x")
    await failed(pull, peer, lane)
    assert store.slot_statistics().free == 16


async def test_a_source_that_stalls_inside_a_block_is_given_up_by_the_deadline(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    pull = start_pull(0.5)
    peer, lane = await fake.taken()
    lane.send(Payload(1, [0], SLOT_BYTES))
    lane.writer.write(b"x")
    result = await pull
    assert (result.state, result.received_blocks) == (HandoffState.LATE, 0)
    assert store.slot_statistics().free == 16
    await peer.close()
    await lane.close()


async def test_a_source_that_falls_silent_is_given_up(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.pulled()
    await failed(pull, peer, lane)


async def test_cancelling_inside_a_block_waits_for_it_and_frees_its_slot(
    fake: FakeSource, transport: TcpTransport, store: Store
) -> None:
    sink = PullSink(store)
    pull = asyncio.create_task(transport.pull(fake.address, "h", sink, 10.0))
    peer, lane = await fake.taken()
    lane.send(Payload(1, [0], SLOT_BYTES))
    session = transport.session(fake.address)
    assert session is not None
    await until(lambda: session.landing == 1)
    pull.cancel()
    await peer.receive(Cancel)
    assert store.slot_statistics().writing == 1
    lane.writer.write(b"x" * SLOT_BYTES)
    with pytest.raises(asyncio.CancelledError):
        await pull
    sink.close()
    assert store.slot_statistics().free == 16
    await peer.close()
    await lane.close()


async def test_blocks_of_a_pull_that_is_over_are_read_and_dropped(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    first = start_pull()
    peer, lane = await fake.taken()
    first.cancel()
    await peer.receive(Cancel)
    lane.send(Payload(1, [0], SLOT_BYTES))
    lane.writer.write(b"x" * SLOT_BYTES)
    second = start_pull()
    assert (await peer.receive(Pull)).pull == 2
    peer.send(Announced(2, []))
    assert await peer.receive(Want) == Want(2, [])
    peer.send(Ended(2, "complete"))
    assert (await second).state is HandoffState.READY
    await peer.close()
    await lane.close()


async def test_a_pull_whose_source_has_ended_waits_for_what_it_took(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.pulled()
    peer.send(Ready(1, [0, 1, 2], [0, 0, 0], [0, 1, 2]))
    assert await peer.receive(Take) == Take(1, [0, 1, 2])
    peer.send(Ended(1, "complete"))
    lane.send(Payload(1, [2, 0], SLOT_BYTES))
    lane.writer.write(b"x" * 2 * SLOT_BYTES)
    lane.send(Payload(1, [1], SLOT_BYTES))
    lane.writer.write(b"x" * SLOT_BYTES)
    assert await pull == PullResult(HandoffState.READY, 3, 3 * SLOT_BYTES)
    await peer.close()
    await lane.close()


async def test_a_pull_that_has_all_it_wanted_does_not_wait_for_the_source(
    fake: FakeSource, start_pull: StartPull
) -> None:
    pull = start_pull()
    peer, lane = await fake.pulled()
    peer.send(Ready(1, [0, 1, 2], [0, 0, 0], [0, 1, 2]))
    assert await peer.receive(Take) == Take(1, [0, 1, 2])
    lane.send(Payload(1, [0, 1, 2], SLOT_BYTES))
    lane.writer.write(b"x" * 3 * SLOT_BYTES)
    assert await pull == PullResult(HandoffState.READY, 3, 3 * SLOT_BYTES)
    await peer.close()
    await lane.close()


async def test_few_blocks_come_with_the_word_that_they_are_ready(
    fake: FakeSource, start_pull: StartPull, store: Store
) -> None:
    fill(store, KEYS[1])
    pull = start_pull()
    peer = await fake.controls.get()
    peer.send(Session(b"session"))
    await peer.receive(Pull)
    peer.send(Announced(1, KEYS))
    assert await peer.receive(Want) == Want(1, [0, 2])
    lane = await fake.lanes.get()
    content = [bytes([position]) * SLOT_BYTES for position in range(3)]
    peer.send(Ready(1, [0, 1, 2], [7, 8, 9], [], b"".join(content)))
    assert await pull == PullResult(HandoffState.READY, 2, 2 * SLOT_BYTES)
    assert store.arena is not None
    reader = store.open_owner()
    pinned = store.pin(reader, [KEYS[0], KEYS[2]])
    assert [block.checksum for block in pinned] == [7, 9]
    assert [bytes(store.arena.slot(block.slot)) for block in pinned] == [content[0], content[2]]
    store.release_owner(reader)
    await peer.close()
    await lane.close()


@pytest.mark.parametrize(("positions", "length"), [([0], SLOT_BYTES - 1), ([0, 1], 2 * SLOT_BYTES - 1), ([], 1)])
async def test_a_word_with_content_of_the_wrong_length_closes_the_connection(
    fake: FakeSource, start_pull: StartPull, positions: list[int], length: int
) -> None:
    pull = start_pull()
    peer, lane = await fake.pulled()
    peer.send(Ready(1, positions, [0] * len(positions), [], b"x" * length))
    assert f"{length} bytes for {len(positions)} blocks" in await failed(pull, peer, lane)


async def test_an_offer_of_what_is_here_is_declined(fake: FakeSource, start_pull: StartPull, store: Store) -> None:
    fill(store, KEYS[1])
    pull = start_pull()
    peer = await fake.controls.get()
    peer.send(Session(b"session"))
    await peer.receive(Pull)
    peer.send(Announced(1, KEYS))
    peer.send(Ready(1, [0, 1], [0, 0], [0, 1]))
    assert await peer.receive(Want) == Want(1, [0, 2])
    assert await peer.receive(Take) == Take(1, [0])
    await peer.close()
    assert (await pull).state is HandoffState.FAILED


async def test_a_source_that_claims_too_much_is_found_out(fake: FakeSource, start_pull: StartPull) -> None:
    pull = start_pull()
    peer, lane = await fake.pulled()
    peer.send(Ended(1, "complete"))
    result = await pull
    assert (result.state, result.reason) == (HandoffState.FAILED, "3 blocks never came")
    await peer.close()
    await lane.close()


async def test_a_source_that_refuses_us_says_why(store: Store) -> None:
    source = TcpTransport(b"other", FINGERPRINT, "127.0.0.1")
    await source.serve(store)
    target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1")
    result = await target.pull(source.address, "h", PullSink(store), 5.0)
    assert result.state is HandoffState.FAILED
    assert result.reason.endswith("wrong cluster secret")
    await target.close()
    await source.close()


async def test_a_source_that_never_greets_fails_the_pull(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=TcpSettings(connect_s=0.05))
        result = await target.pull(f"tcp://127.0.0.1:{silent.getsockname()[1]}", "h", PullSink(store), 5.0)
        assert (result.state, result.received_blocks) == (HandoffState.FAILED, 0)
        await target.close()


async def test_a_peer_gets_one_session_with_as_many_lanes_as_streams(transport: TcpTransport, store: Store) -> None:
    target = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", streams=2)
    sinks = [PullSink(store) for _ in range(6)]
    pulls = [asyncio.create_task(target.pull(transport.address, "h", sink, 5.0)) for sink in sinks]
    await until(lambda: transport.accepted == 3)
    fill(store, *KEYS)
    assert {(await pull).state for pull in pulls} == {HandoffState.READY}
    assert transport.accepted == 3
    for sink in sinks:
        sink.close()
    await target.close()
    await until(lambda: transport.accepted == 0)
