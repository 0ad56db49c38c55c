"""Frames on a raw socket, cut and cancelled anywhere."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from kvtransfer.errors import FrameTooLarge, FrameTruncated
from kvtransfer.framing import frame
from kvtransfer.transports.frame_socket import FrameSocket

BODY = bytes(range(256)) * 4096 * 4  # more than the socket's buffers hold


@pytest.fixture
async def pair() -> AsyncIterator[tuple[FrameSocket, FrameSocket]]:
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.setblocking(False)
    sockets = FrameSocket(left, len(BODY), 0.2), FrameSocket(right, len(BODY), 0.2)
    yield sockets
    for end in sockets:
        end.close()


Pair = tuple[FrameSocket, FrameSocket]


@pytest.mark.parametrize("size", [0, 1, 1000, len(BODY)])
async def test_frames_arrive_in_order(pair: Pair, size: int) -> None:
    near, far = pair
    send = asyncio.create_task(near.send(BODY[:size]))
    assert await far.receive() == BODY[:size]
    await send
    await near.send(b"next")
    assert await far.receive() == b"next"


async def test_senders_take_turns(pair: Pair) -> None:
    near, far = pair
    sends = [asyncio.create_task(near.send(bytes([i]) + BODY[1:])) for i in range(3)]
    for i in range(3):
        assert await far.receive() == bytes([i]) + BODY[1:]
    await asyncio.gather(*sends)


async def test_a_frame_that_has_begun_is_finished_although_its_sender_is_cancelled(pair: Pair) -> None:
    near, far = pair
    send = asyncio.create_task(near.send(BODY))
    await asyncio.sleep(0)
    send.cancel()
    await asyncio.sleep(0)
    assert not send.done()
    assert await far.receive() == BODY
    with pytest.raises(asyncio.CancelledError):
        await send
    await near.send(b"next")
    assert await far.receive() == b"next"


async def test_a_peer_that_reads_nothing_is_given_up(pair: Pair) -> None:
    near, _ = pair
    with pytest.raises(TimeoutError):
        await near.send(BODY)
    with pytest.raises(OSError, match="pipe"):
        await near.send(b"next")


async def test_a_peer_that_sends_nothing_is_given_up(pair: Pair) -> None:
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
    far.allow(1000)
    await near.send(b"x" * 1001)
    with pytest.raises(FrameTooLarge, match="1001 bytes exceeds the maximum of 1000"):
        await far.receive()
