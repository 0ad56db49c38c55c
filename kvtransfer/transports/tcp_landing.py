"""The destination's end of a lane: a thread that writes arriving blocks into the slots that wait for them."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence

from kvtransfer.errors import FramingError, KvTransferError, StoreLost
from kvtransfer.framing import frame
from kvtransfer.greeting import MAX_GREETING_BYTES, answer, verdict
from kvtransfer.transports.landing import LandingField
from kvtransfer.transports.lanes import LaneSocket
from kvtransfer.transports.tcp_dial import Dial
from kvtransfer.transports.tcp_frames import Join, encode, payload
from kvtransfer.transports.tcp_settings import TcpSettings
from kvtransfer.transports.tls_handshake import shake_hands_here

Landed = Callable[[int, Sequence[int], int], None]
"""Told in the loop: a pull, the positions that are whole now (none when their lane broke), their bytes."""


class LandingLane:
    """From connect to close, in a thread of its own; `over` says why it ended."""

    def __init__(self, sock: socket.socket, field: LandingField, settings: TcpSettings, landed: Landed) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._field = field
        self._settings = settings
        self._landed = landed
        self._is_shut = False
        self._lane: LaneSocket | None = None
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.fault: Exception = StoreLost("the peer closed the connection")

    def start(self, dial: Dial, join: Join) -> None:
        """Begin; once."""
        threading.Thread(target=self._run, args=(dial, join), name="kv-lane-in", daemon=True).start()

    @property
    def received_at(self) -> float:
        """When bytes last came, in monotonic time; long ago before any."""
        return float("-inf") if self._lane is None else self._lane.received_at

    def shut(self) -> None:
        """Make it end now: from then on it begins no slot, and leaves the one it is writing."""
        self._is_shut = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _run(self, dial: Dial, join: Join) -> None:
        try:
            self._sock.settimeout(self._settings.connect_s)
            self._sock.connect(dial.where)
            self._sock = dial.secured(self._sock)
            if self._is_shut:  # before there was a connection to shut
                return
            if isinstance(self._sock, ssl.SSLSocket):
                shake_hands_here(self._sock)
            lane = self._lane = LaneSocket(self._sock, self._settings.stall_s)
            lane.send([memoryview(frame(answer(_body(lane), dial.secret, dial.fingerprint, "store lane")))])
            verdict(_body(lane))
            lane.send([memoryview(frame(encode(join)))])
            while (body := lane.receive(MAX_GREETING_BYTES)) is not None:
                self._land(lane, body)
        except (OSError, KvTransferError) as error:
            self.fault = error
        finally:
            self._sock.close()
            self._loop.call_soon_threadsafe(self.over.set_result, None)

    def _land(self, lane: LaneSocket, body: bytes) -> None:
        header = payload.decode(body)
        total = header.block_bytes * len(header.positions)
        if not 0 <= total <= self._settings.max_frame_bytes:
            raise FramingError(f"a payload of {header.block_bytes} bytes in each of {len(header.positions)} blocks")
        slots = self._field.begin(header.pull, header.positions, header.block_bytes)
        if slots is None:
            lane.drain(total)
            return
        whole: Sequence[int] = ()
        try:
            lane.receive_into(slots)
            whole = header.positions
        finally:
            self._field.finish(header.pull)
            self._loop.call_soon_threadsafe(self._landed, header.pull, whole, total)


def _body(lane: LaneSocket) -> bytes:
    body = lane.receive(MAX_GREETING_BYTES)
    if body is None:
        raise StoreLost("the peer closed the connection before the greeting was over")
    return body
