"""The socket of an asyncio client of the store: frames, and who waits for which reply."""

import asyncio
from typing import Any, cast

from kvtransfer.errors import FramingError, StoreLost, StoreRefused
from kvtransfer.framing import BodyDecoder, FrameBuffer
from kvtransfer.greeting import Refused
from kvtransfer.protocol import Reply

_reply = BodyDecoder[Any](Reply | Refused)


class ClientWire(asyncio.Protocol):
    """Frames on the socket, and who waits for which."""

    def __init__(self) -> None:
        self.greeting: asyncio.Queue[bytes] = asyncio.Queue()  # two frames at most: the greeting is lockstep
        self.is_greeted = False
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.lost: StoreLost | None = None
        self.closed = asyncio.get_running_loop().create_future()
        self._buffer = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer.feed(data)
        try:
            for body in self._buffer.frames():
                if self.is_greeted:
                    self._deliver(_reply.decode(body))
                else:
                    self.greeting.put_nowait(body)
        except FramingError as error:
            self.fail(StoreLost(str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(StoreLost(str(error or "the store closed the connection")))
        self.closed.set_result(None)

    def fail(self, error: StoreLost) -> None:
        """End every request under way with `error`, the first that is given."""
        if self.lost is None:
            self.lost = error
            self.greeting.put_nowait(b"")
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(self.lost)
        self.transport.abort()

    def _deliver(self, reply: Any) -> None:
        if isinstance(reply, Refused):
            self.fail(StoreRefused(reply.reason))
            return
        future = self.waiting.get(reply.id)
        if future is not None and not future.done():
            future.set_result(reply)
