"""A lane's socket, blocking, in a thread of its own: bytes go from arena to arena without a copy in between.

`sendmsg` and `recvmsg_into` let go of the interpreter while the kernel copies, so several lanes of one process use
several cores. The kernel's own timeouts end a call that moves nothing for `stall_s`.
"""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Sequence

from kvtransfer.errors import FrameTruncated
from kvtransfer.framing import LENGTH_BYTES, body_length

MAX_VECTORS = 1024
"""Linux takes no more buffers in one call."""

DRAIN_BYTES = 256 * 1024


class LaneSocket:
    """Frames and bytes, in one direction. Raises `OSError` when the peer is gone, `TimeoutError` when it stalls."""

    def __init__(self, sock: socket.socket, stall_s: float) -> None:
        self.received_at = time.monotonic()
        self._sock = sock
        sock.settimeout(stall_s if isinstance(sock, ssl.SSLSocket) else None)  # TLS waits by itself
        timeout = struct.pack("ll", int(stall_s), int(stall_s % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def send(self, buffers: Sequence[memoryview]) -> None:
        """All of them, in order."""
        rest = list(buffers)
        while rest:
            try:
                rest = _after(rest, self._sock.sendmsg(rest[:MAX_VECTORS]))
            except BlockingIOError:
                raise TimeoutError("the peer takes no more bytes") from None

    def receive_into(self, buffers: Sequence[memoryview]) -> None:
        """Fill them, in order. Raises `FrameTruncated` at the end of the stream."""
        rest = list(buffers)
        while rest:
            try:
                count = self._sock.recvmsg_into(rest[:MAX_VECTORS], 0, socket.MSG_WAITALL)[0]
            except BlockingIOError:
                raise TimeoutError("the peer stopped in the middle of something") from None
            if not count:
                raise FrameTruncated
            self.received_at = time.monotonic()
            rest = _after(rest, count)

    def receive(self, max_frame_bytes: int) -> bytes | None:
        """The next frame's body, however long it takes to begin; None at the end of the stream."""
        prefix = b""
        while not prefix:
            try:
                prefix = self._sock.recv(LENGTH_BYTES)
            except (BlockingIOError, TimeoutError):
                continue  # an idle lane: whether the peer lives is for the control connection to find out
            if not prefix:
                return None
        if len(prefix) < LENGTH_BYTES:
            rest = bytearray(LENGTH_BYTES - len(prefix))
            self.receive_into([memoryview(rest)])
            prefix += rest
        body = bytearray(body_length(prefix, max_frame_bytes))
        self.receive_into([memoryview(body)])
        return bytes(body)

    def drain(self, length: int) -> None:
        """Read and drop the next bytes."""
        scratch = memoryview(bytearray(min(length, DRAIN_BYTES)))
        while length:
            part = scratch[: min(length, len(scratch))]
            self.receive_into([part])
            length -= len(part)

    def shut(self) -> None:
        """End the calls under way, from any thread."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. Only the lane's own thread."""
        self._sock.close()


def _after(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What of the buffers is left after so many bytes."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []
