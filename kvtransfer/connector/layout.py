"""How a block lies in a slot: `[kv head][layer][unit]`, heads outermost.

A unit is what one (layer, head) pair holds of one block: opaque bytes, packed as the engine likes. With the heads
outermost, the heads of one tensor-parallel rank are one contiguous range for any degree.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Words = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Shape of one slot."""

    layers: int
    kv_heads: int
    unit_bytes: int

    @property
    def slot_bytes(self) -> int:
        return self.layers * self.kv_heads * self.unit_bytes


class BlockCopier:
    """Copies whole blocks between device memory and arena slots, one strided assignment each.

    `device` is a view `[layer, block, head, word]` of the engine's KV memory and `arena` one of `[slot, head, layer,
    word]`, both over words of the same size: no bytes are converted.
    """

    def __init__(self, device: Words, arena: Bytes, layout: SlotLayout) -> None:
        layers, _, heads, words = device.shape
        if (layers, heads, words * device.itemsize) != (layout.layers, layout.kv_heads, layout.unit_bytes):
            raise ValueError(f"device view {device.shape} of {device.itemsize}-byte words does not fit {layout}")
        if arena.shape[1] != layout.slot_bytes:
            raise ValueError(f"slots of {arena.shape[1]} bytes cannot hold blocks of {layout.slot_bytes}")
        self._device = device
        self._arena = arena.view(device.dtype).reshape(arena.shape[0], heads, layers, words)

    def save(self, block_id: int, slot: int) -> None:
        """Device block into slot."""
        self._arena[slot] = self._device[:, block_id].swapaxes(0, 1)

    def load(self, slot: int, block_id: int) -> None:
        """Slot into device block."""
        self._device[:, block_id] = self._arena[slot].swapaxes(0, 1)
