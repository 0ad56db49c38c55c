"""What waits to be sent on one connection. Pure: it decides what the next write holds, others write.

Invariant: an output of a stream has at most one delta waiting (later ones are absorbed), there is at most one `Load`
and one `Pong`, and KV changes are bounded by their feed, of which one frame leaves at a time. So while a socket is
full, what waits is bounded by the streams in flight. A stream's `StreamFailed` leaves after its deltas.
"""

from cluster.dataplane.frames import (
    Delta,
    Deltas,
    FromGateway,
    FromWorker,
    KvEvents,
    Load,
    Pong,
    StreamFailed,
    encode,
)
from cluster.dataplane.kv_feed import KvFeed
from kvtransfer.framing import LENGTH_BYTES

DeltaItem = tuple[int, Delta]


class Outbox:
    """Frames and deltas of one connection, until `take`."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_bytes = max_frame_bytes + LENGTH_BYTES
        self._frames: list[bytes] = []
        self._deltas: dict[tuple[int, int], Delta] = {}
        self._load: Load | None = None
        self._pong: Pong | None = None
        self._kv: KvFeed | None = None

    def __repr__(self) -> str:
        return f"<Outbox frames={len(self._frames)} deltas={len(self._deltas)}>"

    def add(self, frame: FromWorker | FromGateway) -> None:
        """Send this after what was added before. A `Load` or `Pong` replaces an older one that still waits."""
        if isinstance(frame, Load):
            self._load = frame
        elif isinstance(frame, Pong):
            self._pong = frame
        else:
            self._frames.append(encode(frame))

    def add_delta(self, stream: int, delta: Delta) -> None:
        """Send new tokens; the outbox owns `delta` from here on."""
        key = (stream, delta.index)
        waiting = self._deltas.get(key)
        if waiting is None:
            self._deltas[key] = delta
        else:
            waiting.absorb(delta)

    def forget(self, stream: int) -> None:
        """The stream was aborted: its waiting deltas are not wanted."""
        for key in [key for key in self._deltas if key[0] == stream]:
            del self._deltas[key]

    def follow(self, kv: KvFeed) -> None:
        """Send KV events of this feed from now on."""
        self._kv = kv

    @property
    def has_more(self) -> bool:
        """Whether `take` leaves KV events behind."""
        return self._kv is not None and self._kv.waiting

    def take(self) -> list[bytes]:
        """Everything that waits, encoded, in the order to write it."""
        chunks: list[bytes] = []
        if self._deltas:
            items = [(stream, delta) for (stream, _), delta in self._deltas.items()]
            self._deltas = {}
            self._encode_deltas(items, chunks)
        if self._frames:
            chunks += self._frames
            self._frames = []
        self._take_latest(chunks)
        return chunks

    def _take_latest(self, chunks: list[bytes]) -> None:
        kv: KvEvents | None = self._kv.take() if self._kv is not None else None
        chunks += [encode(frame) for frame in (self._pong, self._load, kv) if frame is not None]
        self._pong = self._load = None

    def _encode_deltas(self, items: list[DeltaItem], chunks: list[bytes]) -> None:
        """One frame if it fits, else halves; a single delta that does not fit fails its stream, not the connection."""
        frame = encode(Deltas(items))
        if len(frame) <= self._max_bytes:
            chunks.append(frame)
        elif len(items) == 1:
            chunks.append(encode(StreamFailed(items[0][0], "engine", "the answer is larger than a frame may be")))
        else:
            half = len(items) // 2
            self._encode_deltas(items[:half], chunks)
            self._encode_deltas(items[half:], chunks)
