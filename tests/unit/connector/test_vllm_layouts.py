"""KV memory as vLLM lays it out, in every order it knows: blocks pass from one order to another."""

import math

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheTensor,
    compute_layout_strides,
    create_kv_cache_views,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

from kvtransfer.connector.layout import HeadShare, SlotLayout
from kvtransfer.connector.orders import BlockLoad, SaveOrder
from kvtransfer.connector.tensors import copier_for
from tests.unit.connector.devices import Rank, new_arena

LAYERS, BLOCKS, HEADS, TOKENS, HEAD_DIM = 3, 4, 2, 16, 32
SPEC = FullAttentionSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=HEAD_DIM, dtype=torch.bfloat16)
LAYOUT = SlotLayout(LAYERS, HEADS, TOKENS * 2 * HEAD_DIM * 2)


def kv_caches(layout: KVCacheLayout, first: int) -> dict[str, torch.Tensor]:
    """vLLM's views of memory in this order, filled with numbers from `first` on in logical order."""
    names = [f"layer.{index}" for index in range(LAYERS)]
    strides = compute_layout_strides(SPEC, BLOCKS, LAYERS, layout)
    raw = torch.zeros(BLOCKS * LAYOUT.block_bytes, dtype=torch.int8)
    place = KVCacheTensor(raw.numel(), names, layer_stride=strides[0], block_stride=strides[1])
    views = create_kv_cache_views(raw, SPEC, BLOCKS, layout, place)
    for view in views:
        words = view.view(torch.int16)
        words.copy_(torch.arange(first, first + math.prod(view.shape)).reshape(view.shape))
        first += math.prod(view.shape)
    return dict(zip(names, views, strict=True))


@pytest.mark.parametrize("source", KVCacheLayout)
@pytest.mark.parametrize("target", KVCacheLayout)
def test_blocks_pass_from_any_order_to_any_other(source: KVCacheLayout, target: KVCacheLayout) -> None:
    arena, share = new_arena(LAYOUT, 2), HeadShare(0, HEADS)
    theirs, ours = kv_caches(source, first=0), kv_caches(target, first=15_000)
    before = {name: cache[0].clone() for name, cache in ours.items()}
    writer, reader = (Rank(cache["layer.0"], copier_for(cache, LAYOUT, share)(arena)) for cache in (theirs, ours))
    (saved,) = writer.save([SaveOrder(b"a", 2, slot=1)])
    assert reader.load([BlockLoad(3, 1, saved.checksum)]) == []
    for name, cache in ours.items():
        assert torch.equal(cache[3].view(torch.int16), theirs[name][2].view(torch.int16))
        assert torch.equal(cache[0].view(torch.int16), before[name].view(torch.int16))
