"""vLLM's KV tensors as one array that copies whole blocks: `[layer, block, head, word]`.

On the CPU each layer's KV is a contiguous `[block, head, token, 2·head dim]` and all layers lie in one storage at a
constant stride, so that one strided view holds them all. What does not look like that is refused.
"""

import itertools
from collections.abc import Mapping

import torch

from kvtransfer.connector.layout import SlotLayout, Words

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def device_view(kv_caches: Mapping[str, torch.Tensor]) -> Words:
    """The view, over integer words of the tensors' element size. Raises `ValueError` for another layout."""
    tensors = list(kv_caches.values())
    first = tensors[0]
    blocks, heads, tokens, channels = first.shape
    block_stride, head_stride, *inner = first.stride()
    if inner != [channels, 1] or any(t.shape != first.shape or t.stride() != first.stride() for t in tensors):
        raise ValueError(f"KV tensors of shape {tuple(first.shape)} and strides {first.stride()} are not block-major")
    words = first.view(WORDS[first.element_size()])
    view = torch.as_strided(
        words,
        (len(tensors), blocks, heads, tokens * channels),
        (_layer_stride(tensors), block_stride, head_stride, 1),
    )
    return view.numpy()  # type: ignore[no-any-return]


def layout_of(view: Words) -> SlotLayout:
    layers, _, heads, words = view.shape
    return SlotLayout(layers, heads, words * view.itemsize)


def _layer_stride(tensors: list[torch.Tensor]) -> int:
    """Elements from one layer to the next."""
    if len(tensors) == 1:
        return 0
    size: int = tensors[0].element_size()
    starts: list[int] = [tensor.data_ptr() for tensor in tensors]
    strides = {later - earlier for earlier, later in itertools.pairwise(starts)}
    stride = strides.pop()
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    if strides or len(storages) > 1 or stride <= 0 or stride % size:
        raise ValueError("the KV tensors of the layers do not lie at one stride in one storage")
    return stride // size
