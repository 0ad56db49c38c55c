"""What one pull wants, what it has taken, what has come, and how it ended. Pure: `tcp_pull` carries it."""

from collections.abc import Mapping, Sequence

from kvtransfer.arena import Arena
from kvtransfer.errors import FramingError
from kvtransfer.transport import Asked, BlockKey, BlockSink, HandoffState, Medium, PullResult
from kvtransfer.transports.tcp_frames import Ended


class PullProgress:
    """Invariant: a position is taken at most once, and only if wanted; what is taken is committed or abandoned."""

    def __init__(self, asked: Asked, sink: BlockSink) -> None:
        self._sink = sink
        self._most_blocks = len(asked) if isinstance(asked, list) else None  # a hand-off has as many as it has
        self._keys: Sequence[BlockKey] = ()
        self._wanted: set[int] | None = None  # None before the announcement
        self._taken: dict[int, int] = {}  # the checksum of each block on its way, by position
        self._blocks = self._bytes = self._no_room = 0
        self._ended: Ended | None = None

    @property
    def arena(self) -> Arena | None:
        """Where the slots lie."""
        return self._sink.arena

    def announced(self, keys: Sequence[BlockKey]) -> list[int]:
        """What is missing here, as positions. Once, and no more than was asked for; else raises `FramingError`."""
        if self._wanted is not None:
            raise FramingError("blocks are announced twice")
        if self._most_blocks is not None and len(keys) > self._most_blocks:
            raise FramingError(f"{len(keys)} blocks are announced, {self._most_blocks} were asked for")
        missing = set(self._sink.missing(keys))
        positions = list(range(len(keys)))
        if len(missing) < len(keys):
            positions = [position for position in positions if keys[position] in missing]
        self._keys, self._wanted = keys, set(positions)
        return positions

    def ready(self, positions: Sequence[int], checksums: Sequence[int]) -> Mapping[int, memoryview]:
        """The slots of those blocks that are wanted and that there is room for, by position. Raises `FramingError` when
        one was not announced.
        """
        blocks = dict(zip(positions, checksums, strict=False))
        if not len(blocks) == len(positions) == len(checksums):
            raise FramingError(f"{len(positions)} blocks are ready with {len(checksums)} checksums")
        if self._wanted is None or (blocks and not 0 <= min(blocks) <= max(blocks) < len(self._keys)):
            raise FramingError("blocks are ready that were not announced")
        for position in blocks.keys() - self._wanted:
            del blocks[position]
        self._wanted.difference_update(blocks)
        slots = self._sink.reserve([self._keys[position] for position in blocks])
        taken = {position: slot for position, slot in zip(blocks, slots, strict=True) if slot is not None}
        for position in blocks.keys() - taken.keys():
            del blocks[position]
            self._no_room += 1
        self._taken.update(blocks)
        return taken

    def brought(self, positions: Sequence[int], content: bytes, slots: Mapping[int, memoryview]) -> None:
        """The blocks at these positions are here, back to back; those that `ready` gave a slot are wanted. Raises
        `FramingError`.
        """
        block_bytes = len(content) // len(positions) if positions else 0
        if len(content) != block_bytes * len(positions) or any(len(slot) != block_bytes for slot in slots.values()):
            raise FramingError(f"{len(content)} bytes for {len(positions)} blocks")
        for index, position in enumerate(positions):
            if position in slots:
                slots[position][:] = content[index * block_bytes : (index + 1) * block_bytes]
        self.landed(list(slots), block_bytes * len(slots), "tcp")

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
        """How the pull ended, once everything taken is here and all was taken, or the source has nothing more."""
        ended, wanted = self._ended, self._wanted
        if ended is not None and ended.outcome == "late":
            return self.result(HandoffState.LATE, ended.reason)
        if self._taken:
            return None
        if wanted is None or wanted:
            reason = None if ended is None else ended.reason or f"{len(wanted or ())} blocks never came"
            return None if reason is None else self.result(HandoffState.FAILED, reason)
        if self._no_room:
            return self.result(HandoffState.FAILED, f"no room for {self._no_room} blocks")
        return self.result(HandoffState.READY)
