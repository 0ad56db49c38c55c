"""Blocks and loads that several ranks work on: settled when every rank has reported its part.

Pure bookkeeping of the scheduler side. Nothing is settled twice, and a late report of slots that are no longer ours is
not taken for one of the slots that are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvtransfer.connector.orders import LoadResult, SaveResult
from kvtransfer.transport import BlockKey

MASK = (1 << 64) - 1


@dataclass(slots=True)
class BlockParts:
    """A block on its way into its slot. `checksum` is the sum over the parts that have arrived."""

    batch: int
    missing: int
    checksum: int = 0
    is_whole: bool = True


@dataclass(slots=True)
class Settled:
    """Blocks whose last part has been reported: `checksums` of those that are whole, and the others' keys."""

    checksums: dict[BlockKey, int] = field(default_factory=dict)
    unsaved: list[BlockKey] = field(default_factory=list)


class SavesUnderWay:
    """Blocks that were ordered to be saved and not yet settled, by key: those of one connection to the store."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._parts: dict[BlockKey, BlockParts] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._parts

    def __len__(self) -> int:
        return len(self._parts)

    def order(self, batch: int, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            self._parts[key] = BlockParts(batch, self._ranks)

    def settle(self, result: SaveResult) -> Settled:
        """Take one rank's report."""
        settled = Settled()
        for block in result.saved:
            self._take(result.batch, block.key, block.checksum, settled)
        for key in result.unsaved:
            self._take(result.batch, key, None, settled)
        return settled

    def forget(self) -> None:
        """The connection they were reserved on is gone, and the slots with it."""
        self._parts.clear()

    def _take(self, batch: int, key: BlockKey, checksum: int | None, settled: Settled) -> None:
        """One rank's part, or None for one that could not be saved."""
        parts = self._parts.get(key)
        if parts is None or parts.batch != batch:
            return
        parts.missing -= 1
        parts.checksum = parts.checksum + (checksum or 0) & MASK
        parts.is_whole &= checksum is not None
        if parts.missing:
            return
        del self._parts[key]
        if parts.is_whole:
            settled.checksums[key] = parts.checksum
        else:
            settled.unsaved.append(key)


@dataclass(slots=True)
class LoadParts:
    """What the ranks have said of one load so far; bad for one is bad for all."""

    missing: int
    corrupt: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    seconds: float = 0.0

    def take(self, result: LoadResult) -> bool:
        """Add one rank's result; whether it was the last."""
        self.missing -= 1
        self.corrupt.update(result.corrupt)
        self.failed.update(result.failed)
        self.seconds = max(self.seconds, result.seconds)
        return not self.missing
