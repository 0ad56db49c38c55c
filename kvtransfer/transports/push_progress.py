"""What the source owes one pull: which blocks are wanted, offered, and on their way. Pure.

Invariant: a block that `Store.committed` pinned is in exactly one place: offered and not answered, or in a parcel that
is not done; `withdraw` and `sent` give back the ones they take out.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvtransfer.errors import StoreRefused
from kvtransfer.transport import CommittedBlock

PIECES = 4
"""Into how many pieces a `Take` is cut, so that every lane has work."""

MIN_PIECE_BYTES = 256 * 1024
MAX_PIECE_BYTES = 8 * 1024 * 1024
"""A piece costs two wake-ups of the loop on either side; its blocks can be read when all of it is there."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one `Ready` said."""

    positions: Sequence[int]
    blocks: Sequence[CommittedBlock]


@dataclass(frozen=True, slots=True)
class Taking:
    """What follows from a `Take`: send these pieces, let go of those blocks."""

    pieces: Sequence[Offer]
    declined: Sequence[CommittedBlock]


class PushProgress:
    """One pull, from its announcement to its end."""

    def __init__(self) -> None:
        self.is_over = False
        self.unsent_blocks = 0
        self._announced_blocks = 0
        self._offers: deque[Offer] = deque()

    @property
    def open_blocks(self) -> int:
        """How many blocks are offered or on their way."""
        return self.unsent_blocks + sum(len(offer.blocks) for offer in self._offers)

    def announced(self, blocks: int) -> None:
        """So many blocks may be wanted."""
        self._announced_blocks = blocks

    def wanted(self, positions: Sequence[int]) -> Sequence[int]:
        """The positions, if they were announced. Raises `StoreRefused`."""
        if any(not 0 <= position < self._announced_blocks for position in positions):
            raise StoreRefused("a block is wanted that was not announced")
        return positions

    def offer(self, positions: Sequence[int], blocks: Sequence[CommittedBlock]) -> None:
        """These were said to be ready."""
        self._offers.append(Offer(positions, blocks))

    def take(self, positions: Sequence[int]) -> Taking:
        """The peer's answer to the oldest offer. Raises `StoreRefused` when it is none."""
        if not self._offers or not set(positions).issubset(self._offers[0].positions):
            raise StoreRefused("a block is taken that was not ready")
        offer, chosen = self._offers.popleft(), set(positions)
        pairs = list(zip(offer.positions, offer.blocks, strict=True))
        taken = [(position, block) for position, block in pairs if position in chosen]
        self.unsent_blocks += len(taken)
        return Taking(list(_pieces(taken)), [block for position, block in pairs if position not in chosen])

    def sent(self, blocks: Sequence[CommittedBlock]) -> None:
        """A parcel is done, sent or not."""
        self.unsent_blocks -= len(blocks)

    def withdraw(self) -> Sequence[CommittedBlock]:
        """The pull is over: the blocks nobody answered for. Parcels that have begun are sent to their end."""
        self.is_over = True
        blocks = [block for offer in self._offers for block in offer.blocks]
        self._offers.clear()
        return blocks


def _pieces(taken: Sequence[tuple[int, CommittedBlock]]) -> Iterator[Offer]:
    if not taken:
        return
    block_bytes = len(taken[0][1].payload)
    piece_bytes = min(max(len(taken) * block_bytes // PIECES, MIN_PIECE_BYTES), MAX_PIECE_BYTES)
    blocks_each = max(1, piece_bytes // block_bytes)
    for first in range(0, len(taken), blocks_each):
        positions, blocks = zip(*taken[first : first + blocks_each], strict=True)
        yield Offer(positions, blocks)
