"""Frames and raw payloads on one non-blocking TCP socket, without copies between the socket and the arena.

A frame that has begun to go out is finished even when its sender is cancelled, since half a frame would spoil the
connection for everybody on it. A peer that moves no byte for `stall_s` in the middle of something is given up.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from kvtransfer.errors import FrameTruncated
from kvtransfer.framing import LENGTH_BYTES, body_length, frame

READ_AHEAD_BYTES = 1024
"""Enough for a frame before a payload; what it reads of the payload itself is copied once more."""


def prepare(sock: socket.socket, buffer_bytes: int, stall_s: float) -> socket.socket:
    """Non-blocking, no Nagle, buffers that stay in the L2 cache, and an end to silent peers."""
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
        self.max_frame_bytes = max_frame_bytes
        self._sock = sock
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._read_ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self._ahead = self._read_ahead[:0]

    async def receive(self) -> bytes | None:
        """The next frame's body; None at the end of the stream. Raises `FramingError` and `OSError`."""
        if not self._ahead and not await self._look_ahead():
            return None
        prefix = bytearray(LENGTH_BYTES)
        await self.receive_into(memoryview(prefix))
        body = bytearray(body_length(prefix, self.max_frame_bytes))
        await self.receive_into(memoryview(body))
        return bytes(body)

    async def receive_into(self, view: memoryview) -> None:
        """Fill `view` with the next bytes. Raises `FrameTruncated`, `TimeoutError` and `OSError`."""
        while view:
            if self._ahead:
                ready = min(len(view), len(self._ahead))
                view[:ready] = self._ahead[:ready]
                self._ahead, view = self._ahead[ready:], view[ready:]
                continue
            async with asyncio.timeout(self._stall_s):
                if len(view) < READ_AHEAD_BYTES:
                    count = await self._look_ahead()
                else:
                    count = await self._loop.sock_recv_into(self._sock, view)
                    view = view[count:]
            if not count:
                raise FrameTruncated

    async def drain(self, length: int) -> None:
        """Read and drop the next bytes."""
        scratch = memoryview(bytearray(min(length, 64 * 1024)))
        while length:
            part = scratch[: min(length, len(scratch))]
            await self.receive_into(part)
            length -= len(part)

    async def send(self, body: bytes, payload: memoryview | None = None) -> None:
        """Send a frame and the payload that belongs to it. `payload` must not change before this returns."""
        buffers = [memoryview(frame(body))] + ([payload] if payload else [])
        async with self._sending:
            await self._send_all(buffers)

    def shut(self) -> None:
        """Break the connection: the reader comes to the end of the stream, senders fail."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. Only when nobody reads or sends any more."""
        if self._sock.fileno() >= 0:
            self._loop.remove_writer(self._sock.fileno())
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    async def _look_ahead(self) -> int:
        """Read what is there, up to a little; how much it was."""
        count = await self._loop.sock_recv_into(self._sock, self._read_ahead)
        self._ahead = self._read_ahead[:count]
        return count

    async def _send_all(self, buffers: Sequence[memoryview]) -> None:
        cancelled: asyncio.CancelledError | None = None
        while buffers:
            try:
                buffers = _rest(buffers, self._sock.sendmsg(buffers))
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


def _rest(buffers: Sequence[memoryview], sent: int) -> list[memoryview]:
    rest = []
    for buffer in buffers:
        if sent < len(buffer):
            rest.append(buffer[sent:])
        sent = max(0, sent - len(buffer))
    return rest
