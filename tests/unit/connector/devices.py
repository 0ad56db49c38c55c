"""Ranks of an engine as plain tensors: what each would hold of a model's KV memory, and each kind of copier."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvtransfer.connector.copier import BlockCopier, HostCopier
from kvtransfer.connector.layout import Bytes, HeadShare, SlotLayout, share_of
from kvtransfer.connector.orders import BlockLoad, LoadOrder, SavedBlock, SaveOrder
from kvtransfer.connector.staged_copier import StagedCopier, register_with_cuda

DEADLINE_S = 10.0

Kv = NDArray[np.int16]  # [layer, block, head, token, word]


def new_arena(layout: SlotLayout, slots: int) -> Bytes:
    return aligned((slots, layout.slot_bytes), torch.uint8)


def aligned(shape: Sequence[int], dtype: torch.dtype) -> NDArray[Any]:
    """Zeros where engines and stores have their memory: on cache lines, as numpy's often is not."""
    return torch.zeros(shape, dtype=dtype).numpy()  # type: ignore[no-any-return]


@dataclass
class Rank:
    """One rank's device memory and its copier."""

    memory: torch.Tensor
    copier: BlockCopier

    def kv(self) -> Kv:
        return self.memory.cpu().numpy()  # type: ignore[no-any-return]

    def save(self, orders: Sequence[SaveOrder]) -> list[SavedBlock]:
        saved: list[SavedBlock] = []
        told = threading.Event()

        def done(blocks: Sequence[SavedBlock]) -> None:
            saved.extend(blocks)
            told.set()

        self.copier.save(orders, done)
        assert told.wait(DEADLINE_S)
        return saved

    def load(self, blocks: Sequence[BlockLoad]) -> Sequence[int]:
        return self.copier.load(LoadOrder("r", "", blocks))()


class Ranks:
    """Makes ranks of one kind of copier, and closes them."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._made: list[Rank] = []
        self._registered: set[int] = set()

    def of(self, model: Kv, arena: Bytes, degree: int) -> list[Rank]:
        """An engine of `degree` ranks whose memory holds the given KV."""
        layers, _, heads, tokens, words = model.shape
        layout = SlotLayout(layers, heads, tokens * words * 2)
        ranks = [self._rank(model, arena, layout, share_of(rank, degree, heads)) for rank in range(degree)]
        self._made += ranks
        return ranks

    def close(self) -> None:
        for rank in self._made:
            rank.copier.close()

    def _rank(self, model: Kv, arena: Bytes, layout: SlotLayout, share: HeadShare) -> Rank:
        memory = torch.from_numpy(model[:, :, share.heads.start : share.heads.stop]).clone()
        if self._kind == "host":
            return Rank(memory, HostCopier(memory.numpy(), arena, layout, share))
        if self._kind == "staged":
            return Rank(memory, StagedCopier(memory, arena, layout, share, lambda: None))
        memory = memory.to("cuda")
        return Rank(memory, StagedCopier(memory, arena, layout, share, self._register(arena)))

    def _register(self, arena: Bytes) -> Callable[[], None]:
        """A process registers memory once; each rank of a real engine is one of its own."""
        if arena.ctypes.data in self._registered:
            return lambda: None
        self._registered.add(arena.ctypes.data)
        return register_with_cuda(arena)
