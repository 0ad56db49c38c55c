"""The seam between a store and the network: how blocks come from another node's store.

The destination asks for a hand-off's blocks, or for a prompt's blocks by the names workers gave them. It says what it
lacks and the source pushes each block as it is committed. Implementations are in `kvtransfer.transports`: TCP, with
NIXL where both nodes have it, and in one process, for tests. One contract suite runs over all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from kvtransfer.arena import Arena

BlockKey = bytes
"""A block's content address inside one namespace: the engine's own block hash, 32 bytes."""


Asked = str | list[int]
"""A hand-off, by its id, or blocks by their labels, in prompt order. A label that should lead to another block than was
meant does no harm: engines look for their own keys."""


Medium = Literal["tcp", "nixl", "loopback"]
"""What carries blocks between two stores."""


class HandoffState(Enum):
    """What became of a hand-off."""

    PENDING = "pending"  # announced or expected, not every block is there
    READY = "ready"  # every announced block is committed
    FAILED = "failed"  # the producer is gone or gave up: what is there is all there will be
    LATE = "late"  # the deadline passed first


@dataclass(frozen=True, slots=True)
class CommittedBlocks:
    """Blocks that may be read until they are released: their slots in the source's arena, and their checksums."""

    slots: Sequence[int]
    checksums: Sequence[int]


class BlockSource(Protocol):
    """The source store, as its transport sees it."""

    @property
    def arena(self) -> Arena | None:
        """Where its blocks lie, once there are any."""
        ...

    async def announced(self, handoff_id: str, deadline_s: float) -> Sequence[BlockKey]:
        """The hand-off's keys in prompt order, as soon as the producer announces them.

        Whoever got them owes a `leave`; until then the blocks stay. Raises `TimeoutError` after `deadline_s` seconds,
        `NeverAnnounced` when the producer ended without.
        """
        ...

    def offer(self, labels: Sequence[int]) -> str:
        """Make a hand-off of what can be read now of the blocks with these labels, up to the first that cannot; its id.

        It is collected like any other. Raises `RequestRefused`.
        """
        ...

    def ready(self, wanted: Sequence[BlockKey]) -> CommittedBlocks:
        """The first of the wanted blocks, in order, up to one that cannot be read now. They stay pinned until
        `release`.
        """
        ...

    async def committed(self, handoff_id: str, wanted: Sequence[BlockKey]) -> CommittedBlocks:
        """As `ready`, but waits for the first of them. None when no more come. The caller brings the deadline."""
        ...

    def release(self, slots: Sequence[int]) -> None:
        """Blocks that `committed` gave are not read any more."""
        ...

    def count_pushed(self, blocks: int, via: Medium) -> None:
        """So many blocks are on their way to a peer."""
        ...

    def count_refused(self) -> None:
        """Somebody was not let in."""
        ...

    def leave(self, handoff_id: str) -> None:
        """The peer wants nothing more of a hand-off whose keys `announced` gave."""
        ...


class BlockSink(Protocol):
    """The destination store, as its transport sees it."""

    @property
    def arena(self) -> Arena | None:
        """Where its slots lie, once there are any."""
        ...

    def missing(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        """Which of the announced keys are not here yet, in order. Called once, with the announced keys."""
        ...

    def reserve(self, keys: Sequence[BlockKey]) -> Sequence[memoryview | None]:
        """For each block a writable slot, or None when there is no room for it."""
        ...

    def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int], via: Medium) -> None:
        """The reserved slots now hold the whole blocks, which came by `via`."""
        ...

    def abandon(self, keys: Sequence[BlockKey]) -> None:
        """The reserved slots will not be filled."""
        ...


@dataclass(frozen=True, slots=True)
class PullResult:
    """How a pull ended: READY when every missing block arrived, FAILED or LATE when not."""

    state: HandoffState
    received_blocks: int
    received_bytes: int
    reason: str = ""


class Transport(Protocol):
    """Moves blocks between two stores."""

    @property
    def address(self) -> str:
        """Where other stores reach this one, e.g. `tcp://10.0.0.7:41233`. Empty before `serve`."""
        ...

    async def serve(self, source: BlockSource) -> None:
        """Start answering pulls from `source`'s blocks. Returns when the address is bound."""
        ...

    async def pull(self, address: str, asked: Asked, sink: BlockSink, deadline_s: float) -> PullResult:
        """Bring the missing ones of the blocks asked for from the store at `address` into `sink`.

        Never raises for a peer's faults.
        """
        ...

    async def close(self) -> None:
        """Stop serving; pulls under way end as FAILED."""
        ...
