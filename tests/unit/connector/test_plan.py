"""Which blocks to save, what a match adds, what a failed load costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.connector.plan import LoadVerdict, PinnedPrefix, blocks_to_save, judge_load
from kvtransfer.protocol import PinnedBlock

BLOCK = 16


@pytest.mark.parametrize(
    ("saved", "computed_tokens", "hashed", "expected"),
    [
        (0, 15, 0, []),
        (0, 16, 1, [0]),
        (0, 40, 4, [0, 1]),
        (2, 40, 4, []),
        (2, 64, 4, [2, 3]),
        (2, 64, 3, [2]),
        (3, 20, 4, []),
    ],
)
def test_full_hashed_blocks_not_yet_saved_are_saved(
    saved: int, computed_tokens: int, hashed: int, expected: list[int]
) -> None:
    assert list(blocks_to_save(saved, computed_tokens, hashed, BLOCK)) == expected


@given(st.lists(st.integers(1, 70), max_size=20))
def test_chunks_of_any_size_save_each_block_once(chunks: list[int]) -> None:
    saved, computed, order = 0, 0, []
    for chunk in chunks:
        computed += chunk
        positions = blocks_to_save(saved, computed, sum(chunks) // BLOCK, BLOCK)
        order += list(positions)
        saved = positions.stop
    assert order == list(range(sum(chunks) // BLOCK))


def test_an_answer_holds_while_the_device_has_more_and_the_connection_lives() -> None:
    prefix = PinnedPrefix(2, (b"c", b"d"), (PinnedBlock(0, 0), PinnedBlock(1, 0)), generation=1)
    assert [prefix.covers(start, 1) for start in (1, 2, 3, 4, 5)] == [False, True, True, True, True]
    assert not prefix.covers(2, 2)
    assert [prefix.beyond(start) for start in (2, 3, 4, 5)] == [2, 1, 0, 0]


@pytest.mark.parametrize(
    ("start", "corrupt", "failed", "verdict"),
    [
        (0, [], [], LoadVerdict(5, 0, 0, "")),
        (0, [3], [], LoadVerdict(3, 2, 2, "corrupt")),
        (0, [4, 3], [], LoadVerdict(3, 2, 2, "corrupt")),
        (0, [0], [], LoadVerdict(0, 5, 0, "corrupt")),
        (2, [0], [], LoadVerdict(0, 5, 5, "corrupt")),
        (0, [], range(5), LoadVerdict(0, 5, 0, "failed")),
    ],
)
def test_a_load_is_worth_what_comes_before_its_first_bad_block(
    start: int, corrupt: list[int], failed: list[int], verdict: LoadVerdict
) -> None:
    assert judge_load(start, 5, corrupt, failed) == verdict
