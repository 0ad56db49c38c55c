"""A worker's end of one stream: what its leg says goes out on the connection of the gateway that opened it.

Closed by its end, its failure or its abort: one of them, once. What comes after that is dropped.
"""

from cluster.dataplane.connection import FrameConnection
from cluster.dataplane.frames import Delta, FailureKind, StreamFailed
from cluster.dataplane.legs import RunningLeg


class StreamSink:
    """In `streams`, under its number, until it is closed."""

    __slots__ = ("_connection", "_number", "_streams", "closed", "leg")

    def __init__(self, connection: FrameConnection, streams: "dict[int, StreamSink]", number: int) -> None:
        self._connection = connection
        self._streams = streams
        self._number = number
        self.leg: RunningLeg | None = None
        self.closed = False

    def delta(self, delta: Delta) -> None:
        if not self.closed:
            self._connection.send_delta(self._number, delta)

    def end(self) -> None:
        if not self.closed:
            self.closed = True
            del self._streams[self._number]

    def fail(self, kind: FailureKind, message: str) -> None:
        if not self.closed:
            self._connection.send(StreamFailed(self._number, kind, message))
            self.end()
