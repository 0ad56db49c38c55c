"""Frames survive any way the stream is cut."""

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtransfer.errors import FrameTooLarge, FrameTruncated
from kvtransfer.framing import FrameBuffer, frame, read_frame, receive_frame


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(bodies: list[bytes], step: int) -> None:
    stream = b"".join(map(frame, bodies))
    buffer, out = FrameBuffer(), []
    for start in range(0, len(stream), step):
        buffer.feed(stream[start : start + step])
        out += list(buffer.frames())
    assert out == bodies
    assert not buffer.is_inside_frame


def test_a_length_is_little_endian() -> None:
    assert frame(b"abc") == b"\x03\x00\x00\x00abc"


def test_a_length_above_the_maximum_is_refused_before_its_bytes_come() -> None:
    buffer = FrameBuffer(max_frame_bytes=10)
    buffer.feed((11).to_bytes(4, "little"))
    with pytest.raises(FrameTooLarge, match="frame of 11 bytes exceeds the maximum of 10 bytes"):
        buffer.next_frame()


def test_a_blocking_socket_is_read_frame_by_frame() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(frame(b"one") + frame(b"") + frame(b"three")[:-1])
        left.shutdown(socket.SHUT_WR)
        assert [receive_frame(right), receive_frame(right)] == [b"one", b""]
        with pytest.raises(FrameTruncated):
            receive_frame(right)


def test_a_blocking_socket_at_its_end_gives_none() -> None:
    left, right = socket.socketpair()
    with right:
        left.close()
        assert receive_frame(right) is None


def test_a_blocking_socket_refuses_a_large_frame() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(frame(b"12345"))
        with pytest.raises(FrameTooLarge):
            receive_frame(right, 4)


def fed(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_stream_is_read_frame_by_frame() -> None:
    reader = fed(frame(b"one") + frame(b"two"))
    assert [await read_frame(reader), await read_frame(reader), await read_frame(reader)] == [b"one", b"two", None]


@pytest.mark.parametrize("cut", [2, 5])
async def test_a_stream_cut_inside_a_frame_is_an_error(cut: int) -> None:
    with pytest.raises(FrameTruncated):
        await read_frame(fed(frame(b"three")[:cut]))


async def test_a_stream_refuses_a_large_frame() -> None:
    with pytest.raises(FrameTooLarge):
        await read_frame(fed(frame(b"12345")), 4)
