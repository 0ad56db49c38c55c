"""One data-plane connection: frames in, frames out, liveness. Used by both ends.

Everything sent within one turn of the event loop leaves in one write. While the peer does not read, nothing is
written and the outbox merges. A bad frame, a frame that is too long, or silence for `dead_s` closes the connection
with a logged reason. Invariant: `lost` is called exactly once on the receiver, after `opened`, and nothing after it.
"""

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Any, Protocol, cast

from cluster.dataplane.frames import Delta, FromGateway, FromWorker
from cluster.dataplane.outbox import Outbox
from cluster.errors import ProtocolViolation
from configs.schema import TimeoutConfig
from kvtransfer import tls
from kvtransfer.errors import FramingError
from kvtransfer.framing import DEFAULT_MAX_FRAME_BYTES, BodyDecoder, FrameBuffer
from kvtransfer.tls import Identity

log = logging.getLogger(__name__)

CLOSED_BY_THE_PEER = "closed by the peer"

LATE_TICK_S = 1.0
"""A liveness timer that fires later than this says that this process stood still, not the peer."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Bounds of a connection, and whether it speaks TLS; both ends use the same."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    connect_s: float = 5.0
    ping_s: float = 2.0
    dead_s: float = 10.0
    tls: Identity | None = None  # None: in the clear

    @classmethod
    def of(cls, timeouts: TimeoutConfig, tls: Identity | None = None) -> "ConnectionSettings":
        """A deployment's."""
        return cls(connect_s=timeouts.connect_s, ping_s=timeouts.ping_s, dead_s=timeouts.dead_s, tls=tls)


class FrameReceiver(Protocol):
    """Whoever acts on a connection's frames."""

    def opened(self, connection: "FrameConnection") -> None:
        """Connected; nothing has been received."""
        ...

    def received(self, frame: Any) -> None:
        """A decoded frame. Raises `ProtocolViolation` to close the connection."""
        ...

    def idle(self) -> None:
        """Nothing was sent for `ping_s`."""
        ...

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        ...


class FrameConnection(asyncio.Protocol):
    """The transport's protocol; see the module's text."""

    def __init__(self, decoder: BodyDecoder[Any], receiver: FrameReceiver, settings: ConnectionSettings) -> None:
        self.outbox = Outbox(settings.max_frame_bytes)
        self._decode = decoder.decode
        self._receiver = receiver
        self._settings = settings
        self._buffer = FrameBuffer(settings.max_frame_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._paused = self._scheduled = self._closing = False
        self._reason = ""
        self._received_at = self._sent_at = self._tick_due = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.peer = "?"

    def __repr__(self) -> str:
        state = "closing" if self._closing else "full" if self._paused else "open"
        return f"<FrameConnection {self.peer} {state} {self.outbox!r}>"

    def allow_frames_up_to(self, max_frame_bytes: int) -> None:
        """From the next bytes on: a peer that has not proven itself gets less memory."""
        self._buffer.max_frame_bytes = max_frame_bytes

    @property
    def closing(self) -> bool:
        """Nothing more is sent or received."""
        return self._closing

    def send(self, frame: FromWorker | FromGateway) -> None:
        """Send in this turn of the loop, or when the peer reads again. Dropped silently once closing."""
        self.outbox.add(frame)
        self.schedule()

    def send_delta(self, stream: int, delta: Delta) -> None:
        """Like `send`, merged with what waits for the same output."""
        self.outbox.add_delta(stream, delta)
        self.schedule()

    def schedule(self) -> None:
        """Let what waits in the outbox leave at the end of this turn."""
        if not self._scheduled and not self._paused:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._paused or self._closing or self._transport is None:
            return
        chunks = self.outbox.take()
        if chunks:
            self._sent_at = self._loop.time()
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self.outbox.has_more:
            self.schedule()

    def close(self, reason: str) -> None:
        """Send what waits, then close. What the peer does not read within `connect_s` is dropped."""
        if self._closing:
            return
        self._flush()
        self._closing, self._reason = True, reason
        self._rearm(self._settings.connect_s)
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; what waits is dropped."""
        if not self._closing:
            self._closing, self._reason = True, reason
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports, which Ray's replicas have, do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = _peer_name(self._transport)
        self._rearm(self._settings.ping_s)
        self._receiver.opened(self)

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        self._buffer.feed(data)
        try:
            for body in self._buffer.frames():
                if self._closing:
                    return
                self._receiver.received(self._decode(body))
        except (ProtocolViolation, FramingError) as error:
            self.abort(str(error))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._receiver.lost(self._reason or (tls.reason(exc) if exc is not None else CLOSED_BY_THE_PEER))

    # Liveness

    def _rearm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tick_due = self._loop.time() + delay_s
        self._timer = self._loop.call_at(self._tick_due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._closing:
            self.abort(self._reason)
            return
        if now - self._tick_due > LATE_TICK_S:
            self._received_at = now
        if now - self._received_at >= self._settings.dead_s:
            log.warning(
                "dropping the data-plane connection with %s: silent for %.1f s", self.peer, self._settings.dead_s
            )
            self.abort(f"silent for {self._settings.dead_s} s")
            return
        if now - self._sent_at >= self._settings.ping_s:
            self._receiver.idle()
        self._rearm(min(self._settings.ping_s, self._received_at + self._settings.dead_s - now))


def _peer_name(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
