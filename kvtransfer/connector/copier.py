"""Copies batches of blocks between device memory and the arena: the seam, and its form for a device that is this CPU.

A copier knows one device, one arena and one rank's heads. It writes the digest of each head it saves behind the block,
and a rank that loads compares the digests of its heads, and the sum of all with the checksum the store keeps.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import xxhash

from kvtransfer.connector.layout import Bytes, HeadShare, SlotLayout, Words
from kvtransfer.connector.orders import BlockLoad, LoadOrder, SavedBlock, SaveOrder
from kvtransfer.connector.streaming import LINE_BYTES, copy_rows, require_lines
from kvtransfer.seal import DIGEST_BYTES

MASK = (1 << 64) - 1

CHUNK_BYTES = 256 * 1024
"""So much of a head, and a copy of it, lie in a core's second-level cache together."""

Saved = Callable[[Sequence[SavedBlock]], None]
"""Told once, from any thread, which of the ordered blocks are in their slots."""


class BlockCopier(Protocol):
    """The engine may overwrite saved blocks, and use loaded ones, as it would after a step of its own."""

    def save(self, orders: Sequence[SaveOrder], done: Saved) -> None:
        """Copy device blocks into slots, as they are after what the engine has started to compute."""

    def load(self, order: LoadOrder) -> Callable[[], Sequence[int]]:
        """What, called on another thread, copies slots into device blocks; returns the indices of corrupt ones."""

    def close(self) -> None:
        """Let go of the arena, after what was begun."""


MakeCopier = Callable[[Bytes], BlockCopier]
"""For an arena as an array of slots."""


def require_fit(device: Sequence[int], word_bytes: int, layout: SlotLayout, share: HeadShare) -> None:
    """Raises `ValueError` unless a device view `[layer, block, head, token, word]` holds that rank's part of blocks."""
    layers, _, heads, tokens, words = device
    if (layers, heads, tokens * words * word_bytes) != (layout.layers, share.count, layout.unit_bytes):
        raise ValueError(f"device view {tuple(device)} of {word_bytes}-byte words does not fit {layout}, {share}")


class Seals:
    """The digests of heads in the arena's slots: xxh3_64, seeded by the head, so that heads cannot change places."""

    def __init__(self, arena: Bytes, layout: SlotLayout) -> None:
        if arena.shape[1] != layout.slot_bytes:
            raise ValueError(f"slots of {arena.shape[1]} bytes cannot hold blocks of {layout.slot_bytes} with digests")
        shape = (len(arena), layout.kv_heads)
        self._digests = np.ndarray(shape, np.uint64, arena, layout.block_bytes, (layout.slot_bytes, DIGEST_BYTES))
        strides = (layout.slot_bytes, layout.head_bytes, 1)
        self._heads: Bytes = np.ndarray((*shape, layout.head_bytes), np.uint8, arena, strides=strides)

    def digest(self, slot: int, head: int) -> int:
        """Of a head's bytes as they are now."""
        return xxhash.xxh3_64_intdigest(self._heads[slot, head].data, head)

    def write(self, slot: int, head: int, digest: int) -> None:
        self._digests[slot, head] = digest

    def read(self, slot: int, head: int) -> int:
        return int(self._digests[slot, head])

    def checksum(self, slot: int) -> int:
        """Of the whole block: what the store was told when it was committed."""
        digests: list[int] = self._digests[slot].tolist()
        return sum(digests) & MASK


class HostCopier:
    """Streaming copies, a few layers of a head at a time, so that they are still in the cache when they are digested.

    `device` is a view `[layer, block, head, token, word]` of the engine's KV memory. One thread saves, one loads.
    """

    def __init__(self, device: Words, arena: Bytes, layout: SlotLayout, share: HeadShare) -> None:
        require_fit(device.shape, device.itemsize, layout, share)
        self._seals = Seals(arena, layout)
        self._share = share
        self._device = _rows_of(device)
        layers, *_, rows, row_bytes = self._device.shape
        shape = (len(arena), layout.kv_heads, layers, rows, row_bytes)
        strides = (layout.slot_bytes, layout.head_bytes, layout.unit_bytes, row_bytes, 1)
        self._slots: Bytes = np.ndarray(shape, np.uint8, arena, strides=strides)
        require_lines(self._device, "the engine's KV memory")
        require_lines(self._slots, "the arena")
        step = min(layers, max(1, CHUNK_BYTES // layout.unit_bytes))
        self._chunks = [slice(first, min(first + step, layers)) for first in range(0, layers, step)]
        self._saving, self._loading = (_lines((step, rows, row_bytes)) for _ in range(2))

    def save(self, orders: Sequence[SaveOrder], done: Saved) -> None:
        """Done before it returns."""
        done([SavedBlock(order.key, self._save(order.block_id, order.slot)) for order in orders])

    def load(self, order: LoadOrder) -> Callable[[], Sequence[int]]:
        return partial(self._load_all, order.blocks)

    def close(self) -> None:
        """Nothing is under way between calls."""

    def _save(self, block_id: int, slot: int) -> int:
        """Returns this rank's part of the block's checksum."""
        checksum = 0
        for held, head in enumerate(self._share.heads if self._share.writes else ()):
            digest = self._copy(self._slots[slot, head], self._device[:, block_id, held], self._saving, head)
            self._seals.write(slot, head, digest)
            checksum += digest
        return checksum & MASK

    def _load_all(self, blocks: Sequence[BlockLoad]) -> Sequence[int]:
        return [index for index, block in enumerate(blocks) if not self._load(block)]

    def _load(self, order: BlockLoad) -> bool:
        """What is digested is what has arrived; the engine does not look at a bad block."""
        sound = self._seals.checksum(order.slot) == order.checksum
        for held, head in enumerate(self._share.heads):
            target = self._device[:, order.block_id, held]
            digest = self._copy(target, self._slots[order.slot, head], self._loading, head)
            sound &= digest == self._seals.read(order.slot, head)
        return sound

    def _copy(self, target: Bytes, source: Bytes, kept: Bytes, head: int) -> int:
        """Copy one head of a block, by way of `kept`; returns its digest."""
        digest = xxhash.xxh3_64(seed=head)
        for layers in self._chunks:
            moved = kept[: layers.stop - layers.start]
            copy_rows(target[layers], source[layers], moved)
            digest.update(moved.data)
        return digest.intdigest()


def _rows_of(device: Words) -> Bytes:
    """As `[layer, block, head, row, byte]`: a row is a whole unit where its tokens lie one after the other."""
    rows: Bytes = device.view(np.uint8)
    *outer, tokens, row_bytes = rows.shape
    if rows.strides[3] != row_bytes:
        return rows
    unit_bytes = tokens * row_bytes
    return np.lib.stride_tricks.as_strided(rows, (*outer, 1, unit_bytes), (*rows.strides[:3], unit_bytes, 1))


def _lines(shape: tuple[int, int, int]) -> Bytes:
    """Memory that begins on a cache line."""
    size = math.prod(shape)
    memory: Bytes = np.empty(size + LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % LINE_BYTES
    return memory[first : first + size].reshape(shape)
