"""Blocks survive the way through a slot, and lie there heads outermost."""

import numpy as np
import pytest
import torch

from kvtransfer.connector.layout import BlockCopier, SlotLayout
from kvtransfer.connector.tensors import device_view, layout_of

LAYERS, BLOCKS, HEADS, TOKENS, CHANNELS, SLOTS = 3, 5, 2, 4, 8, 4


def caches(storage: torch.Tensor) -> dict[str, torch.Tensor]:
    return {f"layer.{index}": storage[index] for index in range(LAYERS)}


@pytest.fixture
def storage() -> torch.Tensor:
    values = torch.arange(LAYERS * BLOCKS * HEADS * TOKENS * CHANNELS, dtype=torch.int16)
    return values.view(torch.bfloat16).reshape(LAYERS, BLOCKS, HEADS, TOKENS, CHANNELS)


def test_the_view_shares_the_engines_memory(storage: torch.Tensor) -> None:
    view = device_view(caches(storage))
    assert layout_of(view) == SlotLayout(LAYERS, HEADS, TOKENS * CHANNELS * 2)
    view[1, 2, 1] = 7
    assert (storage.view(torch.int16)[1, 2, 1] == 7).all()


def test_a_block_comes_back_as_it_was_saved(storage: torch.Tensor) -> None:
    view = device_view(caches(storage))
    layout = layout_of(view)
    copier = BlockCopier(view, np.zeros((SLOTS, layout.slot_bytes), np.uint8), layout)
    saved = view[:, 2].copy()
    copier.save(2, slot=3)
    view[:, 2] = 0
    copier.load(3, block_id=4)
    assert (view[:, 4] == saved).all()


def test_the_heads_of_one_rank_are_one_range_of_a_slot(storage: torch.Tensor) -> None:
    view = device_view(caches(storage))
    layout = layout_of(view)
    arena = np.zeros((SLOTS, layout.slot_bytes), np.uint8)
    BlockCopier(view, arena, layout).save(1, slot=0)
    second_half = arena[0, layout.slot_bytes // 2 :].view(np.int16).reshape(LAYERS, TOKENS * CHANNELS)
    assert (second_half == view[:, 1, 1]).all()


def test_other_layouts_are_refused(storage: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="not block-major"):
        device_view(caches(storage.transpose(3, 4)))
    scattered = {name: tensor.clone() for name, tensor in caches(storage).items()}
    with pytest.raises(ValueError, match="do not lie at one stride"):
        device_view(scattered)


def test_a_slot_of_another_size_is_refused(storage: torch.Tensor) -> None:
    view = device_view(caches(storage))
    with pytest.raises(ValueError, match="cannot hold blocks"):
        BlockCopier(view, np.zeros((SLOTS, 64), np.uint8), layout_of(view))
