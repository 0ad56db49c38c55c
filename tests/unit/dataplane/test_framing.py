"""Bytes to frames, however they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dataplane.framing import FrameSplitter
from cluster.errors import ProtocolViolation


@given(st.lists(st.binary(max_size=200), max_size=20), st.data())
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter = FrameSplitter(max_frame_bytes=200)
    out: list[bytes] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += [bytes(body) for body in splitter.feed(stream[start:stop])]
    assert (out, splitter.pending_bytes) == (bodies, 0)


def test_a_frame_that_is_too_long_is_refused_before_it_arrives() -> None:
    with pytest.raises(ProtocolViolation, match="101 bytes; at most 100"):
        FrameSplitter(max_frame_bytes=100).feed((101).to_bytes(4, "little"))
