"""What one pull wants, what has come, and how it ended. Pure: `kvtransfer.tcp_pull` carries it."""

from collections.abc import Sequence

from kvtransfer.errors import FramingError
from kvtransfer.tcp_frames import Ended
from kvtransfer.transport import BlockKey, BlockSink, HandoffState, PullResult


class PullProgress:
    """Invariant: a position is taken at most once, and only if it was asked for."""

    def __init__(self, sink: BlockSink) -> None:
        self.sink = sink
        self._keys: Sequence[BlockKey] = ()
        self._wanted: set[int] = set()
        self._blocks = self._bytes = self._dropped = 0

    def announced(self, keys: Sequence[BlockKey]) -> list[int]:
        """What is missing here, as positions."""
        missing = set(self.sink.missing(keys))
        positions = [position for position, key in enumerate(keys) if key in missing]
        self._keys, self._wanted = keys, set(positions)
        return positions

    def take_key(self, position: int) -> BlockKey:
        """The wanted key at a position, wanted no more. Raises `FramingError` when it was not."""
        if position not in self._wanted:
            raise FramingError(f"a block at position {position} was not asked for")
        self._wanted.discard(position)
        return self._keys[position]

    def received(self, payload_bytes: int) -> None:
        """A block is here."""
        self._blocks += 1
        self._bytes += payload_bytes

    def dropped(self) -> None:
        """A block came and found no room."""
        self._dropped += 1

    def result(self, state: HandoffState, reason: str = "") -> PullResult:
        """The pull as it would be if it ended so, now."""
        return PullResult(state, self._blocks, self._bytes, reason)

    def ended(self, ended: Ended) -> PullResult:
        """How the pull ended when the source has nothing more for it."""
        if ended.outcome == "late":
            return self.result(HandoffState.LATE, ended.reason)
        if ended.outcome == "failed" or self._wanted:
            return self.result(HandoffState.FAILED, ended.reason or f"{len(self._wanted)} blocks never came")
        if self._dropped:
            return self.result(HandoffState.FAILED, f"no room for {self._dropped} blocks")
        return self.result(HandoffState.READY)
