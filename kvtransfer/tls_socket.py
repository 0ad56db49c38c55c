"""A socket with TLS on it that is used like a plain one, by frames and by lanes.

`ssl` has no `sendmsg` and no `recvmsg_into`: here they go over the buffers one by one, a copy and a record of 16 KiB
at a time. `shutdown` leaves TLS on: `ssl` takes it off first, and who sends meanwhile would send in the clear.
"""

import socket
import ssl
from collections.abc import Sequence
from typing import Any

WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket(ssl.SSLSocket):
    """Made by `wrap_socket` of a context whose `sslsocket_class` this is."""

    def send(self, data: Any, flags: int = 0) -> int:
        """Raises `BlockingIOError` when the socket does not block and would have to."""
        try:
            return super().send(data, flags)
        except WOULD_BLOCK:
            raise BlockingIOError from None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """As `send`."""
        try:
            return super().recv(buflen, flags)
        except WOULD_BLOCK:
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """As `send`."""
        try:
            return super().recv_into(buffer, nbytes, flags)
        except WOULD_BLOCK:
            raise BlockingIOError from None

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:  # type: ignore[override]  # `ssl` has none
        """All of them. Only on a socket that blocks."""
        for buffer in buffers:
            self.sendall(buffer)
        return sum(map(len, buffers))

    def recvmsg_into(  # type: ignore[override]  # `ssl` has none
        self, buffers: Sequence[memoryview], ancbufsize: int = 0, flags: int = 0
    ) -> tuple[int, list[Any], int, None]:
        """Fill them, as far as the stream goes. Only on a socket that blocks."""
        received = sum(map(self._fill, buffers))
        return received, [], 0, None

    def shutdown(self, how: int) -> None:
        """Of the connection below: calls under way end, and none sends any more."""
        socket.socket.shutdown(self, how)

    def _fill(self, buffer: memoryview) -> int:
        received = 0
        while received < len(buffer) and (count := self.recv_into(buffer[received:])):
            received += count
        return received
