"""What a source owes a pull, against a naive model: every block it pinned is let go exactly once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.errors import StoreRefused
from kvtransfer.transports.push_progress import MAX_PIECE_BYTES, PushProgress


@given(
    offers=st.lists(st.integers(1, 40), max_size=6),
    block_bytes=st.sampled_from([1, 4096, 300_000, MAX_PIECE_BYTES + 1]),
    data=st.data(),
)
def test_every_block_is_sent_declined_or_withdrawn_once(
    offers: list[int], block_bytes: int, data: st.DataObject
) -> None:
    progress, given_back, first = PushProgress(), Counter[int](), 0
    waiting = []
    for count in offers:
        positions = list(range(first, first + count))
        first += count
        progress.offer(positions, positions)
        waiting.append(positions)
    for positions in waiting[: data.draw(st.integers(0, len(waiting)))]:
        chosen = data.draw(st.lists(st.sampled_from(positions), unique=True))
        taking = progress.take(chosen, block_bytes)
        sent = [position for piece in taking.pieces for position in piece.positions]
        assert sent == sorted(chosen)
        assert all(len(p.slots) == 1 or len(p.slots) * block_bytes <= MAX_PIECE_BYTES for p in taking.pieces)
        given_back.update(taking.declined)
        for piece in taking.pieces:
            assert piece.slots == piece.positions
            given_back.update(piece.slots)
            progress.sent(len(piece.slots))
    given_back.update(progress.withdraw())
    assert given_back == Counter(range(first))
    assert progress.open_blocks == 0


def test_taking_what_was_not_offered_is_refused() -> None:
    progress = PushProgress()
    with pytest.raises(StoreRefused):
        progress.take([], 8)
    progress.offer([1], [1])
    with pytest.raises(StoreRefused):
        progress.take([2], 8)
