"""What passes between the scheduler side and the worker side of the connector, once each engine step.

The scheduler side decides and orders (`StepOrders`), the worker side copies and reports (`StepReport`). Slots belong
to the store's life named by `epoch`, empty when it is lost: a worker that maps another arena copies nothing and
reports failure. With tensor parallelism every rank gets the same orders and reports its own part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvtransfer.transport import BlockKey


@dataclass(frozen=True, slots=True)
class SaveOrder:
    """Copy device block `block_id` into arena slot `slot`."""

    key: BlockKey
    block_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class BlockLoad:
    """Copy arena slot `slot`, whose block has this checksum, into device block `block_id`."""

    block_id: int
    slot: int
    checksum: int


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """All blocks one request loads, in prompt order, from the store's life `epoch`: where they were pinned."""

    request_id: str
    epoch: str
    blocks: Sequence[BlockLoad]

    def result(self, corrupt: Sequence[int], seconds: float) -> "LoadResult":
        """The result of having copied all blocks, of which these, by index, are corrupt."""
        bad_block_ids = [self.blocks[index].block_id for index in corrupt]
        return LoadResult(self.request_id, corrupt, bad_block_ids=bad_block_ids, seconds=seconds)

    def failure(self) -> "LoadResult":
        """The result of not having loaded anything."""
        ids = [block.block_id for block in self.blocks]
        return LoadResult(self.request_id, failed=range(len(ids)), bad_block_ids=ids)


@dataclass(frozen=True, slots=True)
class StepOrders:
    """One step's work; `batch` is its number and `epoch` that of the saves.

    `idle`: the step computes nothing, so that the worker may wait a moment for its loads.
    """

    batch: int = 0
    epoch: str = ""
    saves: Sequence[SaveOrder] = ()
    loads: Sequence[LoadOrder] = ()
    idle: bool = False


@dataclass(frozen=True, slots=True)
class SavedBlock:
    """One rank's part of block `key` is in its slot; the block's checksum is the sum over the ranks, modulo 2**64."""

    key: BlockKey
    checksum: int


@dataclass(frozen=True, slots=True)
class SaveResult:
    """How one rank carried out the saves of step `batch`. `unsaved` keys were ordered but not copied."""

    batch: int
    saved: Sequence[SavedBlock] = ()
    unsaved: Sequence[BlockKey] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """How a load ended: positions in the order whose checksum failed, and those that could not be read at all.

    `bad_block_ids` are the device blocks of both, which hold garbage now.
    """

    request_id: str
    corrupt: Sequence[int] = ()
    failed: Sequence[int] = ()
    bad_block_ids: Sequence[int] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What ended since the last report: of one rank, or of several one after the other."""

    saves: Sequence[SaveResult] = ()
    loads: Sequence[LoadResult] = ()

    def __add__(self, other: "StepReport") -> "StepReport":
        return StepReport([*self.saves, *other.saves], [*self.loads, *other.loads])
