"""Frames on one non-blocking TCP socket, for control connections and greetings; blocks travel on lanes.

A frame that has begun to go out is finished even when its sender is cancelled, since half a frame would spoil the
connection for everybody on it. A peer that takes no byte for `stall_s` is given up, and so is one that sends none.
"""

import asyncio
import contextlib
import socket

from kvtransfer.errors import FrameTruncated
from kvtransfer.framing import FrameBuffer, frame

READ_BYTES = 64 * 1024


def prepare(sock: socket.socket, buffer_bytes: int, stall_s: float) -> socket.socket:
    """Non-blocking, no Nagle, buffers that stay in the L2 cache, and an end to hosts that are gone."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(stall_s)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(stall_s / 4)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall_s * 1000))
    return sock


class FrameSocket:
    """One reader and any number of senders."""

    def __init__(self, sock: socket.socket, max_frame_bytes: int, stall_s: float) -> None:
        self._sock = sock
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._buffer = FrameBuffer(max_frame_bytes)

    def allow(self, max_frame_bytes: int) -> None:
        """From now on frames of so many bytes are taken."""
        self._buffer.max_frame_bytes = max_frame_bytes

    def next_frame(self) -> bytes | None:
        """The next frame's body, if it is here already. Raises `FrameTooLarge`."""
        return self._buffer.next_frame()

    async def receive(self) -> bytes | None:
        """The next frame's body; None at the end of the stream. Raises `FramingError`, `TimeoutError` and `OSError`."""
        while (body := self._buffer.next_frame()) is None:
            async with asyncio.timeout(self._stall_s):
                data = await self._loop.sock_recv(self._sock, READ_BYTES)
            if not data and self._buffer.is_inside_frame:
                raise FrameTruncated
            if not data:
                return None
            self._buffer.feed(data)
        return body

    async def send(self, *bodies: bytes) -> None:
        """Send a frame of each. Raises `OSError` when the connection is broken."""
        async with self._sending:
            await self._send_all(memoryview(b"".join(map(frame, bodies))))

    def shut(self) -> None:
        """Break the connection: the reader comes to the end of the stream, senders fail."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def detach(self) -> socket.socket:
        """The socket itself, blocking from now on. Only when nobody reads or sends here any more."""
        self._forget()
        self._sock.setblocking(True)
        return self._sock

    def close(self) -> None:
        """Give the socket back. Only when nobody reads or sends any more."""
        if self._sock.fileno() >= 0:
            self._forget()
            self._sock.close()

    def _forget(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._loop.remove_reader(self._sock.fileno())

    async def _send_all(self, rest: memoryview) -> None:
        cancelled: asyncio.CancelledError | None = None
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                try:
                    await self._until_writable()
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _until_writable(self) -> None:
        writable = self._loop.create_future()
        self._loop.add_writer(self._sock.fileno(), _resolve, writable)
        try:
            async with asyncio.timeout(self._stall_s):
                await writable
        except TimeoutError:
            self.shut()
            raise
        finally:
            if self._sock.fileno() >= 0:
                self._loop.remove_writer(self._sock.fileno())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
