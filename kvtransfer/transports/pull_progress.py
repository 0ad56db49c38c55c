"""What one pull wants, what it has taken, what has come, and how it ended. Pure: `tcp_pull` carries it."""

from collections.abc import Mapping, Sequence

from kvtransfer.arena import Arena
from kvtransfer.errors import FramingError
from kvtransfer.transport import BlockKey, BlockSink, HandoffState, Medium, PullResult
from kvtransfer.transports.tcp_frames import Ended


class PullProgress:
    """Invariant: a position is taken at most once, and only if wanted; what is taken is committed or abandoned."""

    def __init__(self, sink: BlockSink) -> None:
        self._sink = sink
        self._keys: Sequence[BlockKey] = ()
        self._wanted: set[int] = set()
        self._taken: dict[int, int] = {}  # the checksum of each block on its way, by position
        self._blocks = self._bytes = self._no_room = 0
        self._ended: Ended | None = None

    @property
    def arena(self) -> Arena | None:
        """Where the slots lie."""
        return self._sink.arena

    def announced(self, keys: Sequence[BlockKey]) -> list[int]:
        """What is missing here, as positions."""
        missing = set(self._sink.missing(keys))
        positions = [position for position, key in enumerate(keys) if key in missing]
        self._keys, self._wanted = keys, set(positions)
        return positions

    def ready(self, positions: Sequence[int], checksums: Sequence[int]) -> Mapping[int, memoryview]:
        """The slots of those blocks there is room for, by position. Raises `FramingError` when one was not wanted."""
        if len(positions) != len(checksums) or len(set(positions)) < len(positions):
            raise FramingError(f"{len(positions)} blocks are ready with {len(checksums)} checksums")
        if not self._wanted.issuperset(positions):
            raise FramingError(f"blocks at {sorted(set(positions) - self._wanted)} were not asked for")
        self._wanted.difference_update(positions)
        slots = self._sink.reserve([self._keys[position] for position in positions])
        taken = {position: slot for position, slot in zip(positions, slots, strict=True) if slot is not None}
        self._no_room += len(positions) - len(taken)
        for position, checksum in zip(positions, checksums, strict=True):
            if position in taken:
                self._taken[position] = checksum
        return taken

    def landed(self, positions: Sequence[int], payload_bytes: int, via: Medium) -> None:
        """These blocks are in their slots."""
        checksums = [self._taken.pop(position) for position in positions]
        self._sink.commit([self._keys[position] for position in positions], checksums, via)
        self._blocks += len(positions)
        self._bytes += payload_bytes

    def ended(self, ended: Ended) -> None:
        """The source has nothing more but what was taken."""
        self._ended = ended

    def abandon(self) -> None:
        """The pull is over and nobody writes for it any more: give back the slots that were not filled."""
        self._sink.abandon([self._keys[position] for position in self._taken])
        self._taken.clear()

    def result(self, state: HandoffState, reason: str = "") -> PullResult:
        """The pull as it would be if it ended so, now."""
        return PullResult(state, self._blocks, self._bytes, reason)

    def verdict(self) -> PullResult | None:
        """How the pull ended, once the source has nothing more and everything taken is here."""
        ended = self._ended
        if ended is None or (self._taken and ended.outcome != "late"):
            return None
        if ended.outcome == "late":
            return self.result(HandoffState.LATE, ended.reason)
        if ended.outcome == "failed" or self._wanted:
            return self.result(HandoffState.FAILED, ended.reason or f"{len(self._wanted)} blocks never came")
        if self._no_room:
            return self.result(HandoffState.FAILED, f"no room for {self._no_room} blocks")
        return self.result(HandoffState.READY)
