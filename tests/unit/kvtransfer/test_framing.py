"""Frames survive any way the stream is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtransfer.errors import FrameInvalid, FrameTooLarge
from kvtransfer.framing import BodyDecoder, FrameBuffer, frame


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


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 4000, b"\xdd\xff\xff\xff\xff", b"\xa1\xff"])
def test_a_body_that_is_no_message_is_refused_whatever_is_wrong_with_it(body: bytes) -> None:
    with pytest.raises(FrameInvalid, match="bad frame: "):
        BodyDecoder[object](object).decode(body)
