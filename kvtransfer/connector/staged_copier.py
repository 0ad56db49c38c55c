"""Copies for a device with memory and streams of its own: CUDA.

A block's units are scattered over the device's memory, so they are gathered there into a contiguous staging buffer, and
cross the bus in one piece a block; loads go the other way. The engine's own stream does no more than gather, and waits
at most for a staging buffer to be free, on the device. The host waits on threads of its own. Digests are taken and
verified in the arena, by the host.

Works on any device of torch, the CPU included, where streams mean nothing: so are its tests, where there is no CUDA.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any

import torch

from kvtransfer.connector.copier import MASK, Saved, Seals, require_fit
from kvtransfer.connector.layout import Bytes, HeadShare, SlotLayout
from kvtransfer.connector.orders import BlockLoad, LoadOrder, SavedBlock, SaveOrder

STAGING_BYTES = 64 * 1024 * 1024
"""Of each of three buffers on the device: two that saves fill and drain in turn, one for loads."""

log = logging.getLogger(__name__)


class Staging:
    """A contiguous buffer of whole blocks on the device. `drained` is recorded when its blocks have left it."""

    def __init__(self, like: torch.Tensor, accelerator: Any) -> None:
        block_bytes = like[0].numel() * like.element_size()
        self.blocks = max(1, STAGING_BYTES // block_bytes)
        self.buffer = torch.empty((self.blocks, *like.shape[1:]), dtype=like.dtype, device=like.device)
        self.drained = accelerator.Event()


class StagedCopier:
    """`device` is a view `[layer, block, head, token, word]` of the engine's KV memory, with any strides; `arena` is
    memory the device can reach, and `release` makes it ordinary memory again.
    """

    def __init__(
        self, device: torch.Tensor, arena: Bytes, layout: SlotLayout, share: HeadShare, release: Callable[[], None]
    ) -> None:
        require_fit(device.shape, device.element_size(), layout, share)
        self._seals = Seals(arena, layout)
        self._share = share
        self._release = release
        self._accelerator: Any = torch.get_device_module(device.device)
        self._blocks = device.permute(1, 2, 0, 3, 4)
        self._slots = _blocks_of(arena, device, layout)[:, share.first : share.first + share.count]
        self._savings = [Staging(self._blocks, self._accelerator) for _ in range(2)]
        self._loading = Staging(self._blocks, self._accelerator)
        self._out, self._in = self._accelerator.Stream(), self._accelerator.Stream()
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="kv-saver")

    def save(self, orders: Sequence[SaveOrder], done: Saved) -> None:
        """Gathers behind what the engine has started to compute; `done` comes from a thread."""
        copied = None
        if self._share.writes:
            turns = cycle(self._savings)
            for batch in _batches(orders, self._loading.blocks):
                copied = self._save(batch, next(turns))
        self._finisher.submit(self._finish_save, orders, copied, done)

    def load(self, order: LoadOrder) -> Callable[[], Sequence[int]]:
        """Whatever the engine has started to do with these blocks goes first."""
        started = self._accelerator.Event()
        started.record(self._accelerator.current_stream())
        return partial(self._load, order.blocks, started)

    def close(self) -> None:
        self._finisher.shutdown()
        self._release()

    def _save(self, orders: Sequence[SaveOrder], staging: Staging) -> Any:
        """Returns the event of the last block's arrival in its slot."""
        compute = self._accelerator.current_stream()
        compute.wait_event(staging.drained)
        gathered, buffer = self._accelerator.Event(), staging.buffer[: len(orders)]
        torch.index_select(self._blocks, 0, self._ids(orders), out=buffer)
        gathered.record(compute)
        self._out.wait_event(gathered)
        with self._accelerator.stream(self._out):
            for block, order in zip(buffer, orders, strict=True):
                self._slots[order.slot].copy_(block, non_blocking=True)
            staging.drained = self._accelerator.Event()
            staging.drained.record(self._out)
        return staging.drained

    def _finish_save(self, orders: Sequence[SaveOrder], copied: Any, done: Saved) -> None:
        saved: Sequence[SavedBlock] = ()
        try:
            if copied is not None:
                copied.synchronize()
            saved = [SavedBlock(order.key, self._seal(order.slot)) for order in orders]
        except Exception:  # whatever it is, the scheduler side waits for this answer
            log.exception("blocks were not saved")
        done(saved)

    def _seal(self, slot: int) -> int:
        """Returns this rank's part of the block's checksum."""
        checksum = 0
        for head in self._share.heads if self._share.writes else ():
            digest = self._seals.digest(slot, head)
            self._seals.write(slot, head, digest)
            checksum += digest
        return checksum & MASK

    def _load(self, blocks: Sequence[BlockLoad], started: Any) -> Sequence[int]:
        """Verifies while the bus is busy."""
        loaded = self._accelerator.Event()
        self._in.wait_event(started)
        with self._accelerator.stream(self._in):
            for batch in _batches(blocks, self._loading.blocks):
                buffer = self._loading.buffer[: len(batch)]
                for staged, block in zip(buffer, batch, strict=True):
                    staged.copy_(self._slots[block.slot], non_blocking=True)
                self._blocks.index_copy_(0, self._ids(batch), buffer)
            loaded.record(self._in)
        corrupt = [index for index, block in enumerate(blocks) if not self._is_sound(block)]
        loaded.synchronize()
        return corrupt

    def _is_sound(self, block: BlockLoad) -> bool:
        seals, slot = self._seals, block.slot
        return seals.checksum(slot) == block.checksum and all(
            seals.digest(slot, head) == seals.read(slot, head) for head in self._share.heads
        )

    def _ids(self, orders: Sequence[SaveOrder] | Sequence[BlockLoad]) -> torch.Tensor:
        return torch.tensor([order.block_id for order in orders]).to(self._blocks.device, non_blocking=True)


def register_with_cuda(arena: Bytes) -> Callable[[], None]:
    """Let the device reach the arena's memory; returns what undoes it. Raises `RuntimeError` where that is refused."""
    runtime, address = torch.cuda.cudart(), arena.ctypes.data
    error = runtime.cudaHostRegister(address, arena.nbytes, 0)
    if error.value:
        raise RuntimeError(f"CUDA cannot reach the arena's {arena.nbytes:,} bytes (try a smaller store): {error}")
    return partial(runtime.cudaHostUnregister, address)


def _blocks_of(arena: Bytes, device: torch.Tensor, layout: SlotLayout) -> torch.Tensor:
    """The arena as `[slot, head of the whole model, layer, token, word]`."""
    layers, _, _, tokens, words = device.shape
    size = device.element_size()
    strides = (layout.slot_bytes // size, layout.head_bytes // size, layout.unit_bytes // size, words, 1)
    flat = torch.from_numpy(arena).view(device.dtype)
    return torch.as_strided(flat, (len(arena), layout.kv_heads, layers, tokens, words), strides)


def _batches(orders: Sequence[Any], blocks: int) -> Iterator[Sequence[Any]]:
    return (orders[first : first + blocks] for first in range(0, len(orders), blocks))
