"""Who holds which heads, and where they lie in a slot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.connector.layout import HeadShare, SlotLayout, share_of
from kvtransfer.fingerprint import KvFingerprint

DEGREES = (1, 2, 4, 8)
dividing = st.tuples(st.sampled_from(DEGREES), st.sampled_from((1, 2, 4, 8, 16)))


def test_a_slot_holds_the_block_and_a_digest_of_each_head() -> None:
    layout = SlotLayout(layers=30, kv_heads=3, unit_bytes=8192)
    assert (layout.head_bytes, layout.block_bytes, layout.slot_bytes) == (245_760, 737_280, 737_344)


def test_the_layout_is_that_of_the_whole_model() -> None:
    fingerprint = KvFingerprint(
        "m", "vllm", "bfloat16", 16, layers=2, kv_heads=4, unit_bytes=64, packing="p", hash_algorithm="sha256"
    )
    assert SlotLayout.of(fingerprint) == SlotLayout(2, 4, 64)


@pytest.mark.parametrize(
    ("ranks", "kv_heads", "shares"),
    [
        (1, 3, [HeadShare(0, 3)]),
        (2, 4, [HeadShare(0, 2), HeadShare(2, 2)]),
        (4, 2, [HeadShare(0, 1), HeadShare(0, 1, False), HeadShare(1, 1), HeadShare(1, 1, False)]),
        (2, 1, [HeadShare(0, 1), HeadShare(0, 1, False)]),
    ],
)
def test_heads_are_shared_as_vllm_shares_them(ranks: int, kv_heads: int, shares: list[HeadShare]) -> None:
    assert [share_of(rank, ranks, kv_heads) for rank in range(ranks)] == shares


@given(dividing)
def test_every_head_is_written_once_and_held_by_equally_many(degree: tuple[int, int]) -> None:
    ranks, kv_heads = degree
    shares = [share_of(rank, ranks, kv_heads) for rank in range(ranks)]
    assert sorted(head for share in shares if share.writes for head in share.heads) == list(range(kv_heads))
    held = sorted(head for share in shares for head in share.heads)
    assert held == sorted(list(range(kv_heads)) * max(1, ranks // kv_heads))


@pytest.mark.parametrize(("ranks", "kv_heads"), [(2, 3), (4, 6), (8, 12), (3, 8)])
def test_degrees_that_do_not_divide_are_refused(ranks: int, kv_heads: int) -> None:
    with pytest.raises(ValueError, match=f"{kv_heads} KV heads cannot be divided among {ranks}"):
        share_of(0, ranks, kv_heads)


def test_a_rank_beyond_the_last_is_refused() -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        share_of(2, 2, 4)
