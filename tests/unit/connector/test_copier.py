"""Blocks survive the way through a slot, from any tensor-parallel degree to any other."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch

from kvtransfer.connector import copier, staged_copier
from kvtransfer.connector.layout import HeadShare, SlotLayout
from kvtransfer.connector.orders import BlockLoad, SaveOrder
from tests.unit.connector.devices import Kv, Ranks, new_arena

LAYERS, BLOCKS, HEADS, TOKENS, WORDS, SLOTS = 3, 5, 4, 4, 32, 4
LAYOUT = SlotLayout(LAYERS, HEADS, TOKENS * WORDS * 2)
MASK = (1 << 64) - 1
DEGREES = (1, 2, 4, 8)
ORDERS = [SaveOrder(b"a", 2, slot=3), SaveOrder(b"b", 4, slot=0)]


def kv(heads: int = HEADS, seed: int = 0) -> Kv:
    return np.random.default_rng(seed).integers(-(2**15), 2**15, (LAYERS, BLOCKS, heads, TOKENS, WORDS), np.int16)


@pytest.fixture(
    params=[
        "host",
        "staged",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
            ],
        ),
    ]
)
def ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """Every kind of copier, with pieces so small that each test has several."""
    monkeypatch.setattr(copier, "CHUNK_BYTES", 2 * TOKENS * WORDS * 2)
    monkeypatch.setattr(staged_copier, "STAGING_BYTES", 1)
    made = Ranks(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize("writers", DEGREES)
def test_what_one_degree_saves_every_other_loads(ranks: Ranks, heads: int, writers: int) -> None:
    layout = SlotLayout(LAYERS, heads, TOKENS * WORDS * 2)
    arena, model, before = new_arena(layout, SLOTS), kv(heads), kv(heads, seed=1)
    parts = [rank.save(ORDERS) for rank in ranks.of(model, arena, writers)]
    first, second = (sum(part[index].checksum for part in parts) & MASK for index in range(2))
    after = before.copy()
    after[:, 0], after[:, 1] = model[:, 2], model[:, 4]
    assert layout.seal.is_sound(memoryview(arena[3]), first), "the store verifies what engines have written"
    assert not layout.seal.is_sound(memoryview(arena[3]), second)
    for readers in DEGREES:
        reading, expected = ranks.of(before, arena, readers), ranks.of(after, new_arena(layout, SLOTS), readers)
        for rank, wanted in zip(reading, expected, strict=True):
            assert rank.load([BlockLoad(0, 3, first), BlockLoad(1, 0, second)]) == []
            assert (rank.kv() == wanted.kv()).all()


def test_the_slot_is_the_same_whatever_degree_wrote_it(ranks: Ranks) -> None:
    arenas = [new_arena(LAYOUT, SLOTS) for _ in DEGREES]
    for arena, degree in zip(arenas, DEGREES, strict=True):
        for rank in ranks.of(kv(), arena, degree):
            rank.save(ORDERS)
    assert all((one == other).all() for one, other in pairwise(arenas))


def test_heads_lie_one_after_the_other_layer_by_layer(ranks: Ranks) -> None:
    arena, model = new_arena(LAYOUT, SLOTS), kv()
    ranks.of(model, arena, 1)[0].save(ORDERS)
    block = arena[3, : LAYOUT.block_bytes].view(np.int16).reshape(HEADS, LAYERS, TOKENS, WORDS)
    assert (block == model[:, 2].swapaxes(0, 1)).all()


def test_a_rank_that_only_reads_a_head_contributes_nothing(ranks: Ranks) -> None:
    arena = new_arena(LAYOUT, SLOTS)
    saved = [rank.save(ORDERS)[0].checksum for rank in ranks.of(kv(), arena, 8)]
    assert [checksum != 0 for checksum in saved] == [True, False] * 4


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("head", range(HEADS))
def test_a_flipped_bit_is_found_by_every_rank_that_loads_its_head(ranks: Ranks, degree: int, head: int) -> None:
    arena = new_arena(LAYOUT, SLOTS)
    engine = ranks.of(kv(), arena, degree)
    checksum = sum(rank.save(ORDERS)[0].checksum for rank in engine) & MASK
    arena[3, head * LAYOUT.head_bytes + 7] ^= 1
    found = [rank.load([BlockLoad(0, 3, checksum)]) == [0] for rank in engine]
    holders = range(head * degree // HEADS, max(head * degree // HEADS + 1, (head + 1) * degree // HEADS))
    assert [index for index, corrupt in enumerate(found) if corrupt] == list(holders)


@pytest.mark.parametrize("degree", DEGREES)
def test_digests_that_are_not_the_blocks_own_are_found_by_every_rank(ranks: Ranks, degree: int) -> None:
    arena = new_arena(LAYOUT, SLOTS)
    engine = ranks.of(kv(), arena, degree)
    first, second = (sum(rank.save(ORDERS)[index].checksum for rank in engine) & MASK for index in range(2))
    arena[3] = arena[0]  # another block, whole and sound
    assert [rank.load([BlockLoad(0, 3, first)]) for rank in engine] == [[0]] * degree
    assert [rank.load([BlockLoad(0, 3, second)]) for rank in engine] == [[]] * degree


def test_heads_that_changed_places_are_found(ranks: Ranks) -> None:
    arena = new_arena(LAYOUT, SLOTS)
    (rank,) = ranks.of(kv(), arena, 1)
    checksum = rank.save(ORDERS)[0].checksum
    size = LAYOUT.head_bytes
    arena[3, : 2 * size] = np.concatenate([arena[3, size : 2 * size], arena[3, :size]])
    digests = arena[3, LAYOUT.block_bytes :].view(np.uint64)
    digests[0], digests[1] = digests[1], digests[0]
    assert rank.load([BlockLoad(0, 3, checksum)]) == [0]


def test_what_does_not_fit_is_refused(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="cannot hold blocks"):
        ranks.of(kv(), np.zeros((SLOTS, 64), np.uint8), 1)
    with pytest.raises(ValueError, match="does not fit"):
        copier.require_fit(kv().shape, 2, LAYOUT, HeadShare(0, 2))


def test_any_order_of_tokens_and_heads_in_memory_gives_the_same_slot(ranks: Ranks) -> None:
    one, other = new_arena(LAYOUT, SLOTS), new_arena(LAYOUT, SLOTS)
    tokens_first = np.ascontiguousarray(kv().swapaxes(2, 3)).swapaxes(2, 3)
    ranks.of(kv(), one, 1)[0].save(ORDERS)
    rank = ranks.of(tokens_first, other, 1)[0]
    checksum = rank.save(ORDERS)[0].checksum
    assert (one == other).all()
    assert rank.load([BlockLoad(1, 3, checksum)]) == []
    assert (rank.kv()[:, 1] == kv()[:, 2]).all()
