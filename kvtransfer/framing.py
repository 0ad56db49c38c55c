"""Frames on a byte stream: an unsigned 32-bit little-endian length, then that many bytes. Pure.

Every protocol of Baton is cut so. Bytes go in, whole frames come out. A length above the maximum raises
`FrameTooLarge` before the frame's bytes are waited for; a body that is no message raises `FrameInvalid`.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from kvtransfer.errors import FrameInvalid, FrameTooLarge

LENGTH_BYTES = 4
TLS_RECORD = b"\x16\x03"
"""How a connection begins whose peer speaks TLS."""

DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


def frame(body: bytes) -> bytes:
    """`body` with its length in front."""
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def body_length(prefix: bytes | bytearray, max_frame_bytes: int) -> int:
    """The length a prefix announces. Raises `FrameTooLarge`."""
    length = int.from_bytes(prefix, "little")
    if length > max_frame_bytes and prefix.startswith(TLS_RECORD):
        raise FrameInvalid("the peer speaks TLS, and security.tls is not set here")
    if length > max_frame_bytes:
        raise FrameTooLarge(length, max_frame_bytes)
    return length


class FrameBuffer:
    """Collects bytes as they come and cuts them into frames."""

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._waiting = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Append what was received."""
        self._waiting += data

    def next_frame(self) -> bytes | None:
        """The next whole frame's body, or None when more bytes are needed. Raises `FrameTooLarge`."""
        if len(self._waiting) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + body_length(self._waiting[:LENGTH_BYTES], self.max_frame_bytes)
        if len(self._waiting) < end:
            return None
        with memoryview(self._waiting) as waiting:
            body = bytes(waiting[LENGTH_BYTES:end])
        del self._waiting[:end]
        return body

    def frames(self) -> Iterator[bytes]:
        """All whole frames received so far. Raises `FrameTooLarge`."""
        while (body := self.next_frame()) is not None:
            yield body

    @property
    def is_inside_frame(self) -> bool:
        """Whether an end of the stream now would cut a frame."""
        return bool(self._waiting)


class BodyDecoder(Generic[T]):
    """Bodies of frames as messages of one type, which is checked. A peer may send anything: whatever a decoder raises
    for it, values nested too deeply included, is `FrameInvalid`.
    """

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def decode(self, body: bytes | memoryview) -> T:
        """The message. Raises `FrameInvalid`."""
        try:
            return self._decode(body)  # type: ignore[no-any-return]  # a union is not a type for mypy
        except (msgspec.MsgspecError, RecursionError) as error:
            raise FrameInvalid(f"bad frame: {error}") from None
