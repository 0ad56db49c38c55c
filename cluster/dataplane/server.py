"""The worker's end of the data plane: who may come in, and which stream belongs to which connection.

Owns the listening socket and every gateway's connection. Decides nothing about tokens: that is the `LegHandler`'s.
Invariant: a stream belongs to one connection; a lost connection aborts its streams and only those, and a slow gateway
holds up nobody, because each connection has its own outbox.
"""

import asyncio
import logging
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.dataplane.connection import CLOSED_BY_THE_PEER, ConnectionSettings, FrameConnection
from cluster.dataplane.frames import (
    PROTOCOL_VERSION,
    Abort,
    Challenge,
    Generate,
    Hello,
    KvTier,
    LetGo,
    Load,
    Ping,
    Pong,
    Refused,
    SourceLost,
    StreamFailed,
    TakeRole,
    Welcome,
    WorkerInfo,
    from_gateway,
)
from cluster.dataplane.kv_feed import KvFeed, KvSnapshot
from cluster.dataplane.legs import NO_WORK, LegHandler, LegWork
from cluster.dataplane.stream_sink import StreamSink
from cluster.dataplane.tls_listener import TlsListener
from cluster.errors import ProtocolViolation
from kvtransfer import auth
from kvtransfer.refusals import Refusals

log = logging.getLogger(__name__)

BACKLOG = 1024

SHUTTING_DOWN = "the worker is shutting down"

GREETING_BYTES = 4096
"""The longest frame from a gateway that has not proven that it belongs here."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Who this worker is and whom it lets in."""

    worker: WorkerInfo
    secret: bytes = field(repr=False)
    model_fingerprint: str
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    max_connections: int = 1024
    max_streams: int = 65_536  # of one gateway
    max_pending_kv_keys: int = 65_536


class WorkerServer:
    """Listens for gateways. `kv_snapshot` gives the router keys of a tier now; None: no KV events are sent."""

    def __init__(self, settings: ServerSettings, handler: LegHandler, kv_snapshot: KvSnapshot | None = None) -> None:
        self.settings = settings
        self.handler = handler
        self.kv_snapshot = kv_snapshot
        self.worker = settings.worker
        self.load: Load | None = None
        self._gateways: set[GatewayConnection] = set()
        self._server: asyncio.Server | TlsListener | None = None
        self.refusals = Refusals(log)

    def __repr__(self) -> str:
        return f"<WorkerServer {self.worker.replica_id} gateways={len(self._gateways)} streams={self.streams}>"

    @property
    def streams(self) -> int:
        """Streams open now, of all gateways."""
        return sum(len(gateway.streams) for gateway in self._gateways)

    @property
    def gateways(self) -> int:
        """Greeted connections."""
        return sum(gateway.greeted for gateway in self._gateways)

    async def listen(self, host: str, port: int = 0) -> str:
        """Start accepting; the address gateways connect to, `host:port`."""
        sock = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
        bound_port = sock.getsockname()[1]
        self._server = await self._serve(sock)
        return f"[{host}]:{bound_port}" if ":" in host else f"{host}:{bound_port}"

    async def _serve(self, sock: socket.socket) -> "asyncio.Server | TlsListener":
        settings = self.settings.connection
        if settings.tls is None:
            return await asyncio.get_running_loop().create_server(self._accept, sock=sock, backlog=BACKLOG)
        listener = TlsListener(sock, self._accept, settings.tls, settings.connect_s, self.refusals)
        listener.start()
        return listener

    def _accept(self) -> FrameConnection:
        return FrameConnection(from_gateway, GatewayConnection(self), self.settings.connection)

    def update_worker(self, worker: WorkerInfo) -> None:
        """The worker's store has moved: tell every gateway."""
        self.worker = worker
        for gateway in self._gateways:
            gateway.update_worker(worker)

    def publish_load(self, load: Load) -> None:
        """Send the load to every gateway, and to each that comes later; each hears what is of the others."""
        self.load = load
        work = {gateway: gateway.work() for gateway in self._gateways}
        everything = sum(work.values(), NO_WORK)
        for gateway, own in work.items():
            gateway.publish_load(load, everything - own)

    def publish_kv(self, tier: KvTier, stored: Collection[int], removed: Collection[int]) -> None:
        """Router keys that appeared in the tier, then keys that disappeared."""
        for gateway in self._gateways:
            gateway.publish_kv(tier, stored, removed)

    async def close(self) -> None:
        """Stop accepting, abort every stream, close every connection."""
        if self._server is not None:
            self._server.close()
        for gateway in list(self._gateways):
            gateway.close(SHUTTING_DOWN)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    # For GatewayConnection only

    def joined(self, gateway: "GatewayConnection") -> bool:
        """False when there is no room for it."""
        if len(self._gateways) >= self.settings.max_connections:
            return False
        self._gateways.add(gateway)
        return True

    def left(self, gateway: "GatewayConnection") -> None:
        self._gateways.discard(gateway)


class GatewayConnection:
    """One gateway: its greeting, its streams."""

    def __init__(self, server: WorkerServer) -> None:
        self._server = server
        self._nonce = auth.make_nonce()
        self._greeting_timer: asyncio.TimerHandle | None = None
        self._kv: KvFeed | None = None
        self.streams: dict[int, StreamSink] = {}
        self.greeted = False
        self.name = "?"

    def __repr__(self) -> str:
        return f"<GatewayConnection {self.name} greeted={self.greeted} streams={len(self.streams)}>"

    # FrameReceiver

    def opened(self, connection: FrameConnection) -> None:
        self.connection = connection
        if not self._server.joined(self):
            connection.abort("too many connections")
            return
        connection.allow_frames_up_to(GREETING_BYTES)
        connection.send(Challenge(PROTOCOL_VERSION, self._nonce))
        self._greeting_timer = asyncio.get_running_loop().call_later(
            self._server.settings.connection.connect_s, self.connection.abort, "no greeting in time"
        )

    def received(self, frame: Any) -> None:
        match frame:
            case Hello():
                self._greet(frame)
            case _ if not self.greeted:
                raise ProtocolViolation(f"{type(frame).__name__} before the greeting")
            case Generate():
                self._open(frame)
            case Abort():
                self._abort(frame.stream)
            case SourceLost():
                if (sink := self.streams.get(frame.stream)) is not None and sink.leg is not None:
                    sink.leg.source_lost()
            case LetGo():
                self._server.handler.let_go(frame.handoff_id)
            case TakeRole():
                self._server.handler.take_role(frame)
            case Ping():
                self.connection.send(Pong(frame.number))

    def idle(self) -> None:
        """A worker's loads are its sign of life."""

    def lost(self, reason: str) -> None:
        if self._greeting_timer is not None:
            self._greeting_timer.cancel()
        self._server.left(self)
        is_usual = reason in (CLOSED_BY_THE_PEER, SHUTTING_DOWN)
        if not self.greeted and not is_usual:
            self._server.refusals.note(self.connection.peer.rpartition(":")[0], reason)
        elif self.streams or not is_usual:
            log.warning("gateway %s is gone (%s): aborting its %d streams", self.name, reason, len(self.streams))
        for number in list(self.streams):
            self._abort(number)

    # Greeting

    def _greet(self, hello: Hello) -> None:
        if self.greeted:
            raise ProtocolViolation("a second greeting")
        reason = self._refusal(hello)
        if reason is not None:
            self.connection.send(Refused(reason))
            self.connection.close(reason)
            return
        self._welcome(hello.gateway)

    def _refusal(self, hello: Hello) -> str | None:
        settings = self._server.settings
        if hello.protocol != PROTOCOL_VERSION:
            return f"protocol version {hello.protocol}, this worker speaks {PROTOCOL_VERSION}"
        if not auth.is_proven(settings.secret, self._nonce, hello.proof):
            return "wrong cluster secret"
        if hello.model_fingerprint != settings.model_fingerprint:
            return f"model fingerprint {hello.model_fingerprint!r}, this worker serves {settings.model_fingerprint!r}"
        return None

    def _welcome(self, name: str) -> None:
        self.greeted, self.name = True, name
        if self._greeting_timer is not None:
            self._greeting_timer.cancel()
        self.connection.allow_frames_up_to(self._server.settings.connection.max_frame_bytes)
        self.connection.send(Welcome(self._server.worker))
        if self._server.load is not None:
            self._server.publish_load(self._server.load)
        if self._server.kv_snapshot is not None:
            self._kv = KvFeed(self._server.kv_snapshot, self._server.settings.max_pending_kv_keys)
            self.connection.outbox.follow(self._kv)
            self.connection.schedule()

    # Streams

    def _open(self, generate: Generate) -> None:
        number = generate.stream
        if number in self.streams:
            raise ProtocolViolation(f"stream {number} is open already")
        if len(self.streams) >= self._server.settings.max_streams:
            self.connection.send(StreamFailed(number, "unavailable", "too many streams on this connection"))
            return
        sink = self.streams[number] = StreamSink(self.connection, self.streams, number)
        sink.leg = self._server.handler.start(generate, sink)

    def _abort(self, number: int) -> None:
        sink = self.streams.get(number)
        if sink is not None:
            sink.end()
            self.connection.outbox.forget(number)
            if sink.leg is not None:
                sink.leg.abort()

    def update_worker(self, worker: WorkerInfo) -> None:
        if self.greeted:
            self.connection.send(Welcome(worker))

    def work(self) -> LegWork:
        """What its streams ask of the engine."""
        return sum((sink.leg.work for sink in self.streams.values() if sink.leg is not None), NO_WORK)

    def publish_load(self, load: Load, others: LegWork) -> None:
        if self.greeted:
            parts = {"others_requests": others.requests, "others_prefill_tokens": others.prefill_tokens}
            self.connection.send(msgspec.structs.replace(load, **parts))

    def publish_kv(self, tier: KvTier, stored: Iterable[int], removed: Iterable[int]) -> None:
        if self._kv is not None:
            self._kv.change(tier, stored, removed)
            self.connection.schedule()

    def close(self, reason: str) -> None:
        """Abort the streams and close once what waits is sent."""
        for number, sink in list(self.streams.items()):
            self.connection.send(StreamFailed(number, "unavailable", reason))
            sink.end()
            if sink.leg is not None:
                sink.leg.abort()
        self.connection.close(reason)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
