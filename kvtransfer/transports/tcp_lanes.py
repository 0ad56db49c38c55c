"""The source's lanes of one session: threads that send taken blocks straight from the arena.

All lanes draw from one queue, so a pull spreads over them by itself and a slow lane holds back only what it has begun.
Invariant: every parcel that was put is told to `done` exactly once, sent or not, and until then its blocks are pinned.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from kvtransfer.arena import Arena
from kvtransfer.framing import frame
from kvtransfer.tasks import outlast
from kvtransfer.transports.lanes import LaneSocket
from kvtransfer.transports.tcp_frames import Payload, encode
from kvtransfer.transports.tcp_settings import TcpSettings


class Recipient(Protocol):
    """Whose blocks they are."""

    is_over: bool

    def sent(self, blocks: int) -> None:
        """One of its parcels, of so many blocks, is done, sent or not."""
        ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """Some blocks of one pull, sent by one lane in one piece, unless the pull is over before it begins."""

    recipient: Recipient
    pull: int
    positions: Sequence[int]
    arena: Arena
    slots: Sequence[int]

    def buffers(self) -> list[memoryview]:
        """What goes over the lane."""
        header = Payload(self.pull, list(self.positions), self.arena.slot_bytes)
        return [memoryview(frame(encode(header))), *self.arena.views(self.slots)]


class SendingLanes:
    """`run` each lane that joins; `put` at any time; `close` when no lane runs any more."""

    def __init__(
        self, settings: TcpSettings, done: Callable[[Parcel], None], broken: Callable[[Exception], None]
    ) -> None:
        """`done` and `broken` are called in the loop."""
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._done = done
        self._broken = broken
        self._is_closed = False
        self._parcels: SimpleQueue[Parcel | None] = SimpleQueue()
        self._lanes: set[LaneSocket] = set()
        self._overs: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """How many lanes have joined."""
        return len(self._lanes)

    async def run(self, sock: socket.socket) -> None:
        """Send over this socket until it or the session ends."""
        if self._is_closed:
            sock.close()
            return
        lane = LaneSocket(sock, self._settings.stall_s)
        over: asyncio.Future[None] = self._loop.create_future()
        self._lanes.add(lane)
        self._overs.add(over)
        threading.Thread(target=self._send_forever, args=(lane, over), name="kv-lane-out", daemon=True).start()
        try:
            await outlast(over, self.shut)
        finally:
            self._lanes.discard(lane)
            self._overs.discard(over)

    def put(self, parcel: Parcel) -> None:
        """Send it when a lane is free."""
        self._parcels.put(parcel)

    def shut(self) -> None:
        """Make every lane end now."""
        for lane in self._lanes:
            lane.shut()
            self._parcels.put(None)

    async def close(self) -> None:
        """The session is over: end the lanes, give back what was not sent."""
        self._is_closed = True
        self.shut()
        try:
            await outlast(asyncio.gather(*self._overs), self.shut)
        finally:
            while (parcel := self._next_left()) is not None:
                self._done(parcel)

    def _next_left(self) -> Parcel | None:
        try:
            while (parcel := self._parcels.get_nowait()) is None:
                continue
        except Empty:
            return None
        return parcel

    def _send_forever(self, lane: LaneSocket, over: "asyncio.Future[None]") -> None:
        try:
            while (parcel := self._parcels.get()) is not None:
                self._send(lane, parcel)
        except OSError as error:
            self._loop.call_soon_threadsafe(self._broken, error)
        finally:
            lane.close()
            self._loop.call_soon_threadsafe(over.set_result, None)

    def _send(self, lane: LaneSocket, parcel: Parcel) -> None:
        try:
            if not parcel.recipient.is_over:
                lane.send(parcel.buffers())
        finally:
            self._loop.call_soon_threadsafe(self._done, parcel)
