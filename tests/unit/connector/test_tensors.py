"""vLLM's KV tensors as one array."""

import pytest
import torch

from kvtransfer.connector.tensors import device_view

LAYERS, BLOCKS, HEADS, TOKENS, CHANNELS = 3, 5, 2, 4, 8


def caches(storage: torch.Tensor) -> dict[str, torch.Tensor]:
    return {f"layer.{index}": storage[index] for index in range(LAYERS)}


@pytest.fixture
def storage() -> torch.Tensor:
    values = torch.arange(LAYERS * BLOCKS * HEADS * TOKENS * CHANNELS, dtype=torch.int16)
    return values.view(torch.bfloat16).reshape(LAYERS, BLOCKS, HEADS, TOKENS, CHANNELS)


def test_the_view_shares_the_engines_memory(storage: torch.Tensor) -> None:
    view = device_view(caches(storage))
    assert view.shape == (LAYERS, BLOCKS, HEADS, TOKENS, CHANNELS)
    view[1, 2, 1] = 7
    assert (storage.view(torch.int16)[1, 2, 1] == 7).all()


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 1, 3, 2, 4), (1, 0, 2, 3, 4), (1, 0, 3, 2, 4), (1, 2, 0, 3, 4)])
def test_every_order_in_memory_that_vllm_knows_is_viewed_alike(storage: torch.Tensor, order: tuple[int, ...]) -> None:
    back = [order.index(dimension) for dimension in range(5)]
    reordered = storage.permute(order).contiguous().permute(back)
    assert torch.equal(device_view(caches(reordered)), device_view(caches(storage)))


def test_other_layouts_are_refused(storage: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="do not hold rows"):
        device_view(caches(storage.transpose(3, 4)))
    with pytest.raises(ValueError, match="do not hold rows"):
        device_view(caches(storage.flatten(3)))
    with pytest.raises(ValueError, match="differ in shape"):
        device_view({**caches(storage), "another": storage[0, 1:]})
    scattered = {name: tensor.clone() for name, tensor in caches(storage).items()}
    with pytest.raises(ValueError, match="do not lie at one stride"):
        device_view(scattered)
