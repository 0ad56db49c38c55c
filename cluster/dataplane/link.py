"""A gateway's connection to one worker, for as long as the worker is listed: connect, greet, carry streams, again.

Owns the connection's streams. Invariant: a stream ends with an answer, an error of the worker's, or `ReplicaLost`
when the connection is gone; none waits for ever. Reconnects back off from `RETRY_FIRST_S` to `RETRY_MOST_S`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster.coordinator.workers import Leg
from cluster.dataplane.connection import CLOSED_BY_THE_PEER, ConnectionSettings, FrameConnection
from cluster.dataplane.frames import (
    PROTOCOL_VERSION,
    Abort,
    Challenge,
    Deltas,
    Hello,
    KvEvents,
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
    from_worker,
)
from cluster.dataplane.kv_inbox import KvInbox, KvListener
from cluster.dataplane.leg_errors import ERRORS
from cluster.dataplane.stream import WorkerStream, opening
from cluster.errors import BatonError, ProtocolViolation, ReplicaLost
from kvtransfer import auth, tls

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 2.0
ASK_AGAIN_S = 1.0
"""How often the streams of a worker that hands them back are asked to go."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Who this gateway is to its workers."""

    gateway: str
    secret: bytes = field(repr=False)
    model_fingerprint: str
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)


@dataclass(frozen=True, slots=True)
class LinkObserver:
    """What a link reports: `changed` when a worker comes, goes or reports a load."""

    changed: Callable[[], None]
    kv: KvListener | None = None


class WorkerLink:
    """One worker. `run` keeps it connected until cancelled or retired and idle."""

    def __init__(self, replica_id: str, address: str, settings: PoolSettings, observer: LinkObserver) -> None:
        self.replica_id = replica_id
        self.address = address
        self.info: WorkerInfo | None = None
        self.load: Load | None = None
        self.load_at = float("-inf")
        self.connects = 0
        self.last_error = ""
        self.streams: dict[int, WorkerStream] = {}
        self._settings = settings
        self._observer = observer
        self._kv = KvInbox(replica_id, observer.kv)
        self._connection: FrameConnection | None = None
        self._ended: asyncio.Future[str] | None = None
        self._refused = ""
        self._next_number = self._pings = 0
        self._ask_again_at = float("-inf")
        self._retired = asyncio.Event()

    def __repr__(self) -> str:
        state = "connected" if self.info is not None else f"away ({self.last_error})"
        return f"<WorkerLink {self.replica_id} at {self.address} {state} streams={len(self.streams)}>"

    # Life

    async def run(self) -> None:
        """Connect and reconnect. Returns when retired and without streams."""
        try:
            await self._keep_connected()
        finally:
            if self._connection is not None:
                self._connection.abort("the gateway let go")
            self._fail_streams("the gateway let go of the worker")
            self.forget()

    async def _keep_connected(self) -> None:
        """Each reason why the worker cannot be reached is said once, until it can be."""
        retry_s, said = RETRY_FIRST_S, ""
        while not self._retired.is_set():
            if await self._connect():
                retry_s, said = RETRY_FIRST_S, ""
            else:
                retry_s = min(retry_s * 2, RETRY_MOST_S)
                if self.last_error != said:
                    log.warning("worker %s at %s: %s", self.replica_id, self.address, self.last_error)
                said = self.last_error
            await self._rest(retry_s * random.uniform(0.5, 1.0))

    async def _connect(self) -> bool:
        """One connection's whole life; whether it was up and ended as connections do."""
        connects = self.connects
        try:
            self.last_error = await self._connect_once()
        except (OSError, TimeoutError) as error:
            self.last_error = tls.reason(error)
        except Exception as error:  # a worker must not stay unreachable for a bug that one connection met
            log.exception("the link to worker %s broke", self.replica_id)
            self.last_error = f"{type(error).__name__}: {error}"
            return False
        return self.connects > connects

    async def _rest(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._retired.wait()
        except TimeoutError:
            return

    async def _connect_once(self) -> str:
        """One connection's whole life; why it ended."""
        loop = asyncio.get_running_loop()
        host, _, port = self.address.rpartition(":")
        self._ended, self._refused = loop.create_future(), ""
        settings = self._settings.connection
        async with asyncio.timeout(settings.connect_s) as greeting:
            _, connection = await loop.create_connection(
                lambda: FrameConnection(from_worker, self, settings),
                host.strip("[]"),
                int(port),
                ssl=None if settings.tls is None else settings.tls.dialling(),
            )
            self._greeting = greeting
            try:
                return await self._ended
            finally:
                connection.abort("done")

    def retire(self) -> None:
        """The worker is not listed any more: no new streams; the connection goes when the last stream ends."""
        self._retired.set()
        self._leave_if_idle()

    def forget(self) -> None:
        """What the worker holds is not told any more, and what was told is forgotten."""
        self._kv.retire()

    def _leave_if_idle(self) -> None:
        if self._retired.is_set() and not self.streams and self._ended is not None and not self._ended.done():
            self._ended.set_result("retired")

    # FrameReceiver

    def opened(self, connection: FrameConnection) -> None:
        self._connection = connection

    def received(self, frame: Any) -> None:
        match frame:
            case Deltas() if self.info is not None:
                self._deliver(frame)
            case Load() if self.info is not None:
                self.load, self.load_at = frame, asyncio.get_running_loop().time()
                self._observer.changed()
                if frame.handing_back:
                    self._hand_back(self.load_at)
            case StreamFailed() if self.info is not None:
                self._end(frame.stream, ERRORS[frame.kind](frame.message))
            case KvEvents() if self.info is not None:
                self._kv.received(frame)
            case Challenge() if self.info is None:
                self._answer(frame)
            case Welcome() if self.info is None:
                self._enter(frame.worker)
            case Welcome():
                self.info = frame.worker
                self._observer.changed()
            case Refused() if self.info is None:
                self._refused = f"refuses this gateway: {frame.reason}"
            case Pong() if self.info is not None:
                pass
            case _:
                raise ProtocolViolation(f"{type(frame).__name__} out of turn")

    def idle(self) -> None:
        if self._connection is not None and self.info is not None:
            self._pings += 1
            self._connection.send(Ping(self._pings))

    def lost(self, reason: str) -> None:
        reason = self._refused or reason
        entered, self.info, self.load, self._connection = self.info is not None, None, None, None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(reason)
            if entered and reason != CLOSED_BY_THE_PEER:
                log.warning("worker %s is gone (%s) with %d streams", self.replica_id, reason, len(self.streams))
        self._fail_streams(f"worker {self.replica_id} is gone: {reason}")
        if entered:
            self._observer.changed()
            self._kv.closed()

    # Greeting

    def _answer(self, challenge: Challenge) -> None:
        assert self._connection is not None
        if challenge.protocol != PROTOCOL_VERSION:
            raise ProtocolViolation(f"the worker speaks protocol {challenge.protocol}, not {PROTOCOL_VERSION}")
        proof = auth.prove(self._settings.secret, challenge.nonce)
        self._connection.send(Hello(PROTOCOL_VERSION, self._settings.gateway, self._settings.model_fingerprint, proof))

    def _enter(self, info: WorkerInfo) -> None:
        if self._ended is None or self._ended.done():
            return
        self._greeting.reschedule(None)
        self.info, self.last_error = info, ""
        self.connects += 1
        self._kv.entered(info)
        self._observer.changed()

    # Streams

    def open(self, leg: Leg) -> WorkerStream:
        """Raises `ReplicaLost` when not connected, `InvalidRequest` for what the wire cannot carry."""
        connection = self._connection
        if connection is None or connection.closing or self.info is None or self._retired.is_set():
            raise ReplicaLost(f"worker {self.replica_id} is not connected")
        self._next_number += 1
        number = self._next_number
        connection.send(opening(number, leg))
        stream = self.streams[number] = WorkerStream(
            leg.outputs,
            lambda: self._abort(number),
            lambda: connection.send(SourceLost(number)),
        )
        return stream

    def let_go(self, handoff_id: str) -> None:
        """See `Workers`."""
        if self._connection is not None and self.info is not None:
            self._connection.send(LetGo(handoff_id))

    def take_role(self, order: TakeRole) -> None:
        """Lend the worker, if it is connected."""
        if self._connection is not None and self.info is not None:
            self._connection.send(order)

    def _abort(self, number: int) -> None:
        if self.streams.pop(number, None) is not None and self._connection is not None:
            self._connection.send(Abort(number))
        self._leave_if_idle()

    def _deliver(self, frame: Deltas) -> None:
        streams = self.streams
        for number, delta in frame.items:
            stream = streams.get(number)
            if stream is not None:
                stream.deliver(delta)
                if not stream.open:
                    del streams[number]
                    self._leave_if_idle()

    def _end(self, number: int, error: BatonError) -> None:
        stream = self.streams.pop(number, None)
        if stream is not None:
            stream.fail(error)
            self._leave_if_idle()

    def _hand_back(self, now: float) -> None:
        if now >= self._ask_again_at:
            self._ask_again_at = now + ASK_AGAIN_S
            for stream in self.streams.values():
                stream.hand_back()

    def _fail_streams(self, reason: str) -> None:
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.fail(ReplicaLost(reason))
