"""Frames and payloads on a raw socket, cut and cancelled anywhere."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from kvtransfer.errors import FrameTooLarge, FrameTruncated
from kvtransfer.frame_socket import READ_AHEAD_BYTES, FrameSocket
from kvtransfer.framing import frame

PAYLOAD = bytes(range(256)) * 4096 * 4  # more than the socket's buffers hold


@pytest.fixture
async def pair() -> AsyncIterator[tuple[FrameSocket, FrameSocket]]:
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.setblocking(False)
    sockets = FrameSocket(left, 1000, 0.2), FrameSocket(right, 1000, 0.2)
    yield sockets
    for end in sockets:
        end.close()


Pair = tuple[FrameSocket, FrameSocket]


async def receive_with_payload(end: FrameSocket, payload_bytes: int) -> tuple[bytes | None, bytes]:
    body, payload = await end.receive(), bytearray(payload_bytes)
    await end.receive_into(memoryview(payload))
    return body, bytes(payload)


@pytest.mark.parametrize("size", [0, 1, READ_AHEAD_BYTES - 5, READ_AHEAD_BYTES, READ_AHEAD_BYTES * 3, len(PAYLOAD)])
async def test_a_payload_follows_its_frame(pair: Pair, size: int) -> None:
    near, far = pair
    payload = PAYLOAD[:size]
    send = asyncio.create_task(near.send(b"header", memoryview(payload)))
    assert await receive_with_payload(far, size) == (b"header", payload)
    await send
    await near.send(b"next")
    assert await far.receive() == b"next"


async def test_senders_take_turns(pair: Pair) -> None:
    near, far = pair
    sends = [asyncio.create_task(near.send(bytes([i]), memoryview(PAYLOAD))) for i in range(3)]
    for i in range(3):
        assert await receive_with_payload(far, len(PAYLOAD)) == (bytes([i]), PAYLOAD)
    await asyncio.gather(*sends)


async def test_a_frame_that_has_begun_is_finished_although_its_sender_is_cancelled(pair: Pair) -> None:
    near, far = pair
    send = asyncio.create_task(near.send(b"header", memoryview(PAYLOAD)))
    assert await far.receive() == b"header"
    send.cancel()
    await asyncio.sleep(0)
    assert not send.done()
    payload = bytearray(len(PAYLOAD))
    await far.receive_into(memoryview(payload))
    assert payload == PAYLOAD
    with pytest.raises(asyncio.CancelledError):
        await send
    await near.send(b"next")
    assert await far.receive() == b"next"


async def test_dropped_bytes_leave_the_stream_in_step(pair: Pair) -> None:
    near, far = pair
    send = asyncio.create_task(near.send(b"header", memoryview(PAYLOAD)))
    assert await far.receive() == b"header"
    await far.drain(len(PAYLOAD))
    await send
    await near.send(b"next")
    assert await far.receive() == b"next"


async def test_a_peer_that_reads_nothing_is_given_up(pair: Pair) -> None:
    near, far = pair
    with pytest.raises(TimeoutError):
        await near.send(b"header", memoryview(PAYLOAD))
    with pytest.raises(OSError, match="pipe"):
        await near.send(b"next")
    assert await far.receive() == b"header"


async def test_a_peer_that_stops_inside_a_frame_is_given_up(pair: Pair) -> None:
    near, far = pair
    near._sock.send(frame(b"header")[:-1])
    with pytest.raises(TimeoutError):
        await far.receive()


async def test_an_end_between_frames_is_none_and_inside_one_an_error(pair: Pair) -> None:
    near, far = pair
    near._sock.send(frame(b"header") + frame(b"cut")[:-1])
    near.shut()
    assert await far.receive() == b"header"
    with pytest.raises(FrameTruncated):
        await far.receive()
    assert await near.receive() is None


async def test_a_large_frame_is_refused(pair: Pair) -> None:
    near, far = pair
    await near.send(b"x" * 1001)
    with pytest.raises(FrameTooLarge, match="1001 bytes exceeds the maximum of 1000"):
        await far.receive()
