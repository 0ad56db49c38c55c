"""Frames on one non-blocking TCP socket, for greetings and control connections; most blocks travel on lanes.

A control connection's frames are handled in the callback that reads them, and what the kernel takes at once is sent
without a task: a pull of few blocks takes as long as the loops' turns. A frame that has begun to go out is finished
even when its sender is cancelled, since half a frame would spoil the connection for everybody on it. A peer that takes
no byte for `stall_s` is given up, and so is one that sends none.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from functools import partial

from kvtransfer.errors import FrameTruncated
from kvtransfer.framing import FrameBuffer, frame
from kvtransfer.tasks import outlast
from kvtransfer.transports.readiness import until_readable

READ_BYTES = 128 * 1024

MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""While a peer leaves so much unread, nothing more is read from it."""

Handle = Callable[[Sequence[bytes]], None]
"""Given the bodies of frames that came together."""


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
        self._buffer = FrameBuffer(max_frame_bytes)
        self._heard_at = 0.0
        self._resume: Callable[[], None] | None = None
        self._unsent = bytearray()
        self._drained: asyncio.Future[None] | None = None
        self._hurry: asyncio.TimerHandle | None = None

    def allow(self, max_frame_bytes: int) -> None:
        """From now on frames of so many bytes are taken."""
        self._buffer.max_frame_bytes = max_frame_bytes

    async def receive(self) -> bytes | None:
        """The next frame's body; None at the end of the stream. Raises `FramingError`, `TimeoutError` and `OSError`."""
        while (body := self._buffer.next_frame()) is None:
            async with asyncio.timeout(self._stall_s):
                data = await self._some()
            if not self._take(data):
                return None
        return body

    async def _some(self) -> bytes:
        while True:
            try:
                return self._sock.recv(READ_BYTES)
            except BlockingIOError:
                await until_readable(self._sock)

    async def deliver(self, handle: Handle) -> None:
        """Have all further frames handled, until the end of the stream. Raises what `receive` raises, and `handle`."""
        over: asyncio.Future[None] = self._loop.create_future()
        self._heard_at = self._loop.time()
        read = partial(self._readable, memoryview(bytearray(READ_BYTES)), handle, over)
        self._resume = lambda: self._loop.add_reader(self._sock.fileno(), read)
        try:
            if bodies := list(self._buffer.frames()):
                handle(bodies)
            self._resume()
            while not over.done():
                await asyncio.wait([over], timeout=self._stall_s / 4)
                if self._loop.time() - self._heard_at > self._stall_s:
                    raise TimeoutError("the peer is silent")
            over.result()
        finally:
            self._resume = None
            self._stop_reading()

    def write(self, *bodies: bytes) -> None:
        """Send a frame of each, as the peer reads them. Raises `OSError` when the connection is broken."""
        rest = memoryview(b"".join(map(frame, bodies)))
        if self._drained is None:
            rest = rest[self._send_some(rest) :]
            if not rest:
                return
            self._drained = self._loop.create_future()
            self._loop.add_writer(self._sock.fileno(), self._writable)
            self._expect_progress()
        self._unsent += rest

    async def send(self, *bodies: bytes) -> None:
        """As `write`, and return when the kernel has it."""
        self.write(*bodies)
        if self._drained is not None:
            await outlast(self._drained, lambda: None)

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
        self._stop_sending()
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())

    def _readable(self, scratch: memoryview, handle: Handle, over: "asyncio.Future[None]") -> None:
        try:
            count = self._sock.recv_into(scratch)
            self._heard_at = self._loop.time()
            if not self._take(scratch[:count]):
                over.set_result(None)
            elif bodies := list(self._buffer.frames()):
                handle(bodies)
        except BlockingIOError:
            return
        except Exception as error:  # for who waits in `deliver`
            over.set_exception(error)
        if over.done():
            self._resume = None
        if over.done() or len(self._unsent) > MAX_UNSENT_BYTES:
            self._stop_reading()

    def _take(self, data: bytes | memoryview) -> bool:
        """Keep what was read. False at the end of the stream. Raises `FrameTruncated`."""
        if not data and self._buffer.is_inside_frame:
            raise FrameTruncated
        self._buffer.feed(data)
        return bool(data)

    def _writable(self) -> None:
        try:
            with memoryview(self._unsent) as waiting:
                sent = self._send_some(waiting)
        except OSError as error:
            self._stop_sending(error)
            return
        del self._unsent[:sent]
        if self._unsent:
            self._expect_progress()
            return
        self._stop_sending()
        if self._resume is not None:
            self._resume()

    def _send_some(self, data: memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def _expect_progress(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
        self._heard_at = self._loop.time()
        self._hurry = self._loop.call_later(self._stall_s, self._is_stalled)

    def _is_stalled(self) -> None:
        self.shut()
        self._stop_sending(TimeoutError("the peer reads nothing"))

    def _stop_sending(self, error: OSError | None = None) -> None:
        """Everything is out, or nothing more goes."""
        drained, self._drained = self._drained, None
        if drained is None:
            return
        self._unsent.clear()
        self._loop.remove_writer(self._sock.fileno())
        if self._hurry is not None:
            self._hurry.cancel()
        if error is None:
            drained.set_result(None)
        else:
            drained.set_exception(error)
            drained.exception()  # there may be no sender who waits
