"""The connector's decisions about one request: which blocks to save, what to load, what a failed load costs.

Pure: positions and counts in, positions and counts out. A position is a block's index in its request's chain.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvtransfer.protocol import PinnedBlock
from kvtransfer.transport import BlockKey


def blocks_to_save(saved: int, computed_tokens: int, hashed_blocks: int, block_size: int) -> range:
    """Positions to save in a step after which `computed_tokens` of the request are in device memory.

    `saved` blocks were taken care of before. A block is saved when it is full and the engine has hashed it; blocks
    found in the device's own prefix cache count as computed.
    """
    return range(saved, max(saved, min(computed_tokens // block_size, hashed_blocks)))


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """Blocks of a request pinned in the store: positions `start` to `start + len(blocks)`.

    `generation` names the connection that holds the pins; they are gone with it.
    """

    start: int
    keys: Sequence[BlockKey]
    blocks: Sequence[PinnedBlock]
    generation: int

    @property
    def end(self) -> int:
        return self.start + len(self.blocks)

    def covers(self, start: int, generation: int) -> bool:
        """Whether the answer still holds when the device itself has the first `start` blocks."""
        return self.generation == generation and start >= self.start

    def beyond(self, start: int) -> int:
        """Blocks it adds to the device's own first `start`."""
        return max(0, self.end - start)


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """What a finished load was worth.

    The engine keeps the blocks before the first bad one and computes the rest. `overcounted_blocks` is by how much
    the engine's own count of cached blocks is then too high: it counts the whole load, unless it matches anew
    because nothing at all is left.
    """

    loaded_blocks: int
    recomputed_blocks: int
    overcounted_blocks: int
    reason: str  # "", "corrupt" or "failed"


def judge_load(start: int, count: int, corrupt: Collection[int], failed: Collection[int]) -> LoadVerdict:
    """Weigh a load of `count` blocks from position `start` on; `corrupt` and `failed` are indices into it."""
    bad = sorted([*corrupt, *failed])
    if not bad:
        return LoadVerdict(count, 0, 0, "")
    good = bad[0]
    reason = "corrupt" if good in corrupt else "failed"
    matched_anew = start + good == 0
    return LoadVerdict(good, count - good, 0 if matched_anew else count - good, reason)
