"""One local connection on the store's side: bytes to requests, replies to bytes, waits as tasks.

Requests are answered in the callback that received them, so a round trip costs one turn of the loop. While the peer
does not read its replies, nothing more is read from it. A peer at fault is told the reason and closed.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from kvtransfer.errors import FramingError, StoreRefused
from kvtransfer.framing import BodyDecoder, FrameBuffer, frame
from kvtransfer.greeting import MAX_GREETING_BYTES, Gatekeeper, Welcome, refusal
from kvtransfer.inspection import Verify
from kvtransfer.protocol import (
    Attached,
    AwaitHandoff,
    Failed,
    Fetch,
    Pin,
    Release,
    Reply,
    Request,
    Watch,
    Watched,
)
from kvtransfer.recalls import Recalls
from kvtransfer.session import StoreSession
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.verification import Verifications
from kvtransfer.waits import HandoffWaits
from kvtransfer.watch import KeyWatch

logger = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_request = BodyDecoder[Any](Request)


@dataclass(frozen=True, slots=True)
class Reception:
    """What every connection of a server shares. `admitted` and `closed` are told of each connection."""

    settings: StoreSettings
    secret: bytes
    fingerprint: str
    address: Callable[[], str]
    store: Store
    waits: HandoffWaits
    recalls: Recalls
    verifications: Verifications
    connections: "set[StoreConnection]"
    tasks: set[asyncio.Task[None]]


class StoreConnection(asyncio.Protocol):
    """From accept to close. `reception.tasks` keeps its waits, which end soon after the connection does."""

    def __init__(self, reception: Reception) -> None:
        self.name = "a newcomer"
        self._reception = reception
        self._buffer = FrameBuffer(MAX_GREETING_BYTES)
        self._gatekeeper = Gatekeeper(reception.secret, reception.fingerprint)
        self._session: StoreSession | None = None
        self._waits: dict[str, set[asyncio.Task[None]]] = {}
        self._wait_count = 0
        self._watch: KeyWatch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[None]] = set()
        self._is_paused = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self.closed = loop.create_future()
        self._greet_by = loop.call_later(self._reception.settings.connect_s, self._greeting_is_late)
        self._reception.connections.add(self)
        if len(self._reception.connections) > self._reception.settings.max_connections:
            self._refuse(StoreRefused(f"{self._reception.settings.max_connections} connections are open already"))
        else:
            self._transport.write(frame(self._gatekeeper.challenge()))

    def data_received(self, data: bytes) -> None:
        self._buffer.feed(data)
        self._work()

    def pause_writing(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._work()
        if not self._is_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)
        self._greet_by.cancel()
        self._reception.connections.discard(self)
        for tasks in self._waits.values():
            for task in tasks:
                task.cancel()
        for task in self._late:
            task.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._watch is not None:
            self._watch.close()
        if self._session is not None:
            self._session.close()
            self._session = None
            if self._buffer.is_inside_frame:
                logger.warning("%s: connection ended inside a frame", self.name)

    def close(self) -> None:
        """Close now, dropping replies that were not sent."""
        self._transport.abort()

    # Requests

    def _work(self) -> None:
        """Answer what has come, as long as the peer reads the answers."""
        try:
            while not self._is_paused and not self._transport.is_closing():
                body = self._buffer.next_frame()
                if body is None:
                    return
                self._received(body)
        except (FramingError, StoreRefused) as error:
            self._refuse(error)

    def _received(self, body: bytes) -> None:
        if self._session is None:
            self._admit(body)
            return
        request = _request.decode(body)
        if type(request) in (AwaitHandoff, Fetch):
            self._start_wait(request)
            return
        if type(request) is Watch:
            self._start_watch(request)
            return
        if type(request) is Pin and self._reception.recalls.are_needed(request.keys):
            session = self._session
            self._answer_late(self._reception.recalls.spawn(request.keys, lambda: self._send(session.answer(request))))
            return
        if type(request) is Verify:
            self._answer_late(self._reception.verifications.spawn(request, self._send))
            return
        if type(request) is Release:
            self._cancel_waits(request.handoff_id)
        reply = self._session.answer(request)
        if type(reply) is Attached:
            self._send_with_arena(reply)
        else:
            self._send(reply)

    def _admit(self, body: bytes) -> None:
        self.name = f"client {self._gatekeeper.admit(body).name!r}"
        reception = self._reception
        self._greet_by.cancel()
        self._buffer.max_frame_bytes = reception.settings.max_frame_bytes
        self._session = StoreSession(reception.store, self.name, lambda: len(reception.connections))
        self._transport.write(frame(_encode(Welcome(reception.store.epoch, reception.address()))))

    def _start_wait(self, request: AwaitHandoff | Fetch) -> None:
        settings = self._reception.settings
        if not 0.0 <= request.deadline_s <= settings.max_wait_s:
            self._send(
                Failed(request.id, f"deadline_s is {request.deadline_s}, allowed are 0 to {settings.max_wait_s}")
            )
            return
        if self._wait_count >= settings.max_waits:
            self._send(Failed(request.id, f"{settings.max_waits} waits are open, the most allowed"))
            return
        task = asyncio.get_running_loop().create_task(self._wait(request))
        self._wait_count += 1
        self._waits.setdefault(request.handoff_id, set()).add(task)
        self._reception.tasks.add(task)
        task.add_done_callback(lambda done: self._wait_is_over(request, done))

    async def _wait(self, request: AwaitHandoff | Fetch) -> None:
        assert self._session is not None
        owner, waits = self._session.owner, self._reception.waits
        if isinstance(request, Fetch):
            ended = await waits.fetch(owner, request)
        else:
            ended = await waits.run(owner, request)
        self._send(ended.reply(request.id))

    def _cancel_waits(self, handoff_id: str) -> None:
        for task in self._waits.get(handoff_id, ()):
            task.cancel()

    def _wait_is_over(self, request: AwaitHandoff | Fetch, task: asyncio.Task[None]) -> None:
        self._wait_count -= 1
        self._reception.tasks.discard(task)
        waits = self._waits[request.handoff_id]
        waits.discard(task)
        if not waits:
            del self._waits[request.handoff_id]
        if task.cancelled():
            self._send(Failed(request.id, "released"))
        elif (error := task.exception()) is not None:
            logger.error("%s: a wait broke", self.name, exc_info=error)
            self._refuse(StoreRefused("internal error"))

    def _answer_late(self, task: asyncio.Task[None]) -> None:
        """Let it answer, unless the connection is lost before."""
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _start_watch(self, request: Watch) -> None:
        settings = self._reception.settings
        if not 0.0 <= request.wait_s <= settings.max_wait_s:
            self._send(Failed(request.id, f"wait_s is {request.wait_s}, allowed are 0 to {settings.max_wait_s}"))
            return
        if self._watch is None:
            self._watch = KeyWatch(self._reception.store)
        if self._watching is not None:
            self._watching.cancel()
        if request.start_over:
            self._watch.start_over()
        task = self._watching = asyncio.get_running_loop().create_task(self._answer_watch(request, self._watch))
        self._reception.tasks.add(task)
        task.add_done_callback(lambda done: self._watch_is_answered(request, done))

    async def _answer_watch(self, request: Watch, watch: KeyWatch) -> None:
        change = await watch.next(request.wait_s)
        labels = [self._reception.store.label_of(key) for key in change.appeared]
        self._send(Watched(request.id, change.snapshot, change.appeared, labels, change.gone))

    def _watch_is_answered(self, request: Watch, task: asyncio.Task[None]) -> None:
        self._reception.tasks.discard(task)
        if self._watching is task:
            self._watching = None
        if task.cancelled():
            self._send(Failed(request.id, "another watch began"))
        elif (error := task.exception()) is not None:
            logger.error("%s: a watch broke", self.name, exc_info=error)
            self._refuse(StoreRefused("internal error"))

    # Replies

    def _send(self, reply: Reply) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame(_encode(reply)))

    def _send_with_arena(self, reply: Attached) -> None:
        """The file descriptor must ride on this very message, so nothing may be queued before it."""
        arena = self._reception.store.arena
        assert arena is not None
        message = frame(_encode(reply))
        if self._transport.get_write_buffer_size():
            self._send(Failed(reply.id, "attach again when all replies are read"))
            return
        try:
            sent = _send_fd(self._transport, message, arena.fd)
        except OSError as error:
            self._send(Failed(reply.id, f"the arena could not be handed over: {error}"))
            return
        if sent < len(message):
            self._transport.write(message[sent:])

    def _refuse(self, error: FramingError | StoreRefused) -> None:
        logger.warning("%s refused: %s", self.name, error)
        self._buffer = FrameBuffer()  # nothing more of it is read, so nothing is cut off
        if not self._transport.is_closing():
            self._transport.write(frame(refusal(error)))
            self._transport.close()

    def _greeting_is_late(self) -> None:
        self._refuse(StoreRefused(f"no greeting within {self._reception.settings.connect_s} s"))

    def __repr__(self) -> str:
        return f"<StoreConnection {self.name} waits={self._wait_count}>"


def _send_fd(transport: asyncio.Transport, message: bytes, fd: int) -> int:
    """Send `message` with a file descriptor past the transport; how many bytes went out."""
    with socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno())) as sock:
        return socket.send_fds(sock, [message], [fd])
