"""vLLM's KV tensors as one array, and what copies its blocks.

vLLM hands over one tensor for each layer, of the logical shape `[block, head, token, K and V of the token]`, all in one
allocation at one stride, whatever the attention backend. The order in memory is the backend's affair: tokens before
heads, layers within blocks, and so on. The inside of a unit is copied as it is. What looks otherwise is refused.
"""

import itertools
from collections.abc import Mapping

import torch

from kvtransfer.connector.copier import HostCopier, MakeCopier
from kvtransfer.connector.layout import HeadShare, SlotLayout
from kvtransfer.connector.staged_copier import StagedCopier, register_with_cuda

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def copier_for(kv_caches: Mapping[str, torch.Tensor], layout: SlotLayout, share: HeadShare) -> MakeCopier:
    """What copies between these tensors and an arena. Raises `ValueError` for tensors it cannot copy."""
    view = device_view(kv_caches)
    if view.device.type == "cpu":
        return lambda arena: HostCopier(view.numpy(), arena, layout, share)
    return lambda arena: StagedCopier(view, arena, layout, share, register_with_cuda(arena))


def device_view(kv_caches: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """`[layer, block, head, token, word]` over integer words of the tensors' element size.

    Raises `ValueError` for another layout.
    """
    tensors = list(kv_caches.values())
    first = tensors[0]
    if first.dim() != 4 or first.stride(3) != 1:
        raise ValueError(f"KV tensors of shape {tuple(first.shape)} and strides {first.stride()} do not hold rows")
    if any(t.shape != first.shape or t.stride() != first.stride() for t in tensors):
        raise ValueError("the KV tensors of the layers differ in shape or strides")
    words = first.view(WORDS[first.element_size()])
    return torch.as_strided(words, (len(tensors), *first.shape), (_layer_stride(tensors), *first.stride()))


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
