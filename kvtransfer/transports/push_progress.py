"""What the source owes one pull: which blocks are wanted, offered, and on their way. Pure.

Invariant: a block that `Store.committed` pinned is in exactly one place: offered and not answered, or in a parcel that
is not done; `withdraw` and `sent` give back the ones they take out.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_

from kvtransfer.errors import StoreRefused

PIECES = 2
"""Into how many pieces a `Take` is cut, so that every lane has work."""

MIN_PIECE_BYTES = 1024 * 1024
MAX_PIECE_BYTES = 8 * 1024 * 1024
"""A piece costs two wake-ups of the loop on either side; its blocks can be read when all of it is there."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Blocks that one `Ready` named, and the slots they are in."""

    positions: Sequence[int]
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class Taking:
    """What follows from a `Take`: send these pieces, let go of those slots."""

    pieces: Sequence[Offer]
    declined: Sequence[int]


class PushProgress:
    """One pull, from its announcement to its end."""

    def __init__(self) -> None:
        self.is_over = False
        self.unsent_blocks = self.offered_blocks = 0
        self._announced_blocks = 0
        self._offers: deque[Offer] = deque()

    @property
    def open_blocks(self) -> int:
        """How many blocks are offered or on their way."""
        return self.unsent_blocks + sum(len(offer.slots) for offer in self._offers)

    def announced(self, blocks: int) -> None:
        """So many blocks may be wanted."""
        self._announced_blocks = blocks

    def wanted(self, positions: Sequence[int]) -> Sequence[int]:
        """The positions, if they were announced. Raises `StoreRefused`."""
        if any(not 0 <= position < self._announced_blocks for position in positions):
            raise StoreRefused("a block is wanted that was not announced")
        return positions

    def offer(self, positions: Sequence[int], slots: Sequence[int]) -> None:
        """These were said to be ready."""
        self._offers.append(Offer(positions, slots))
        self.offered_blocks += len(slots)

    def brought(self, blocks: int) -> None:
        """So many came with the word that they are ready: nobody answers."""
        self.offered_blocks += blocks

    def take(self, positions: Sequence[int], block_bytes: int) -> Taking:
        """The peer's answer to the oldest offer. Raises `StoreRefused` when it is none."""
        chosen = set(positions)
        if not self._offers or not chosen.issubset(self._offers[0].positions):
            raise StoreRefused("a block is taken that was not ready")
        offer = self._offers.popleft()
        is_taken = [position in chosen for position in offer.positions]
        taken = Offer(list(compress(offer.positions, is_taken)), list(compress(offer.slots, is_taken)))
        self.unsent_blocks += len(taken.slots)
        return Taking(list(_pieces(taken, block_bytes)), list(compress(offer.slots, map(not_, is_taken))))

    def sent(self, blocks: int) -> None:
        """A parcel is done, sent or not."""
        self.unsent_blocks -= blocks

    def withdraw(self) -> Sequence[int]:
        """The pull is over: the slots nobody answered for. Parcels that have begun are sent to their end."""
        self.is_over = True
        slots = [slot for offer in self._offers for slot in offer.slots]
        self._offers.clear()
        return slots


def _pieces(taken: Offer, block_bytes: int) -> Iterator[Offer]:
    blocks = len(taken.slots)
    piece_bytes = min(max(blocks * block_bytes // PIECES, MIN_PIECE_BYTES), MAX_PIECE_BYTES)
    blocks_each = max(1, piece_bytes // block_bytes)
    for first in range(0, blocks, blocks_each):
        piece = slice(first, first + blocks_each)
        yield Offer(taken.positions[piece], taken.slots[piece])
