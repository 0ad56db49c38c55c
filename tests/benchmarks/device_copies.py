"""What the copies of a same-node hand-off cost beside memcpy: `python -m tests.benchmarks.device_copies`.

For each shape, blocks of an engine's KV memory go to scattered slots of an arena (save) and back (load) by the copier
of a CPU engine, digests taken and verified, and as many bytes by plain memcpy between the same slots and contiguous
blocks. One process, one thread, in turns, in memory far larger than the caches.
"""

import argparse
import ctypes
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kvtransfer.arena import Arena
from kvtransfer.connector.copier import HostCopier
from kvtransfer.connector.layout import HeadShare, SlotLayout
from kvtransfer.connector.orders import BlockLoad, LoadOrder, SavedBlock, SaveOrder
from tests.benchmarks import machine
from tests.benchmarks.spread import ratios, spread

TOTAL_BYTES = 512 * 1024 * 1024

Rates = Mapping[str, Sequence[float]]  # GB/s, one entry a round


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's KV in blocks of so many tokens, in 16-bit numbers."""

    model: str
    layers: int
    kv_heads: int
    head_dim: int
    tokens: int

    @property
    def layout(self) -> SlotLayout:
        return SlotLayout(self.layers, self.kv_heads, self.tokens * 2 * self.head_dim * 2)

    def __str__(self) -> str:
        layout = self.layout
        units = f"{layout.layers * layout.kv_heads} units of {layout.unit_bytes // 1024} KiB"
        return f"{self.model}, blocks of {self.tokens} tokens, {layout.block_bytes // 1024:,} KiB in {units}"


SHAPES = (
    Shape("SmolLM2-135M", layers=30, kv_heads=3, head_dim=64, tokens=32),
    Shape("SmolLM2-135M", layers=30, kv_heads=3, head_dim=64, tokens=128),
    Shape("8B", layers=32, kv_heads=8, head_dim=128, tokens=16),
    Shape("8B", layers=32, kv_heads=8, head_dim=128, tokens=128),
)

WAYS = {"save": "memcpy to slots", "load": "memcpy from slots"}
"""What each direction is compared with."""


class Bench:
    """One shape's memory: a device, an arena, and contiguous blocks for memcpy."""

    def __init__(self, shape: Shape) -> None:
        layout = shape.layout
        self._block_bytes = layout.block_bytes
        blocks = TOTAL_BYTES // layout.slot_bytes
        self.bytes = blocks * layout.block_bytes
        memory = torch.ones(
            (layout.layers, blocks, layout.kv_heads, shape.tokens, 2 * shape.head_dim), dtype=torch.int16
        )
        self._plain = np.ones((blocks, layout.block_bytes), np.uint8)
        self._arena = Arena.create(blocks, layout.slot_bytes)
        self._arena.array[:] = 1
        self._copier = HostCopier(memory.numpy(), self._arena.array, layout, HeadShare(0, layout.kv_heads))
        self._slots = random.Random(0).sample(range(blocks), blocks)
        self._saved: list[SavedBlock] = []

    def ways(self) -> dict[str, Callable[[], None]]:
        """Each moves all blocks once; `save` comes before `load`."""
        plain, arena = self._rows(self._plain, range(len(self._slots))), self._rows(self._arena.array, self._slots)
        return {
            "memcpy to slots": lambda: self._memcpy(arena, plain),
            "save": self._save,
            "memcpy from slots": lambda: self._memcpy(plain, arena),
            "load": self._load,
        }

    def _save(self) -> None:
        self._saved.clear()
        orders = [SaveOrder(b"", block, slot) for block, slot in enumerate(self._slots)]
        self._copier.save(orders, self._saved.extend)

    def _load(self) -> None:
        pairs = zip(enumerate(self._slots), self._saved, strict=True)
        blocks = [BlockLoad(block, slot, saved.checksum) for (block, slot), saved in pairs]
        if self._copier.load(LoadOrder("", "", blocks))():
            raise RuntimeError("a block came back corrupt")

    def _rows(self, array: np.ndarray, rows: Sequence[int]) -> list[int]:
        """Their addresses."""
        return [array.ctypes.data + row * array.strides[0] for row in rows]

    def _memcpy(self, targets: Sequence[int], sources: Sequence[int]) -> None:
        for target, source in zip(targets, sources, strict=True):
            ctypes.memmove(target, source, self._block_bytes)


def measure(shape: Shape, rounds: int) -> Rates:
    """All ways in turn, each once a round, after one round that only warms up."""
    bench = Bench(shape)
    ways = bench.ways()
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 1):
        for way, move in ways.items():
            started = time.perf_counter()
            move()
            rates[way].append(bench.bytes / (time.perf_counter() - started) / 1e9)
    return {way: measured[1:] for way, measured in rates.items()}


def table(shape: Shape, rates: Rates) -> str:
    """GB/s with their spread, and the ratios to memcpy of the same round."""
    lines = [str(shape)]
    for way, measured in rates.items():
        ratio = f"  x memcpy {ratios(measured, rates[WAYS[way]])}" if way in WAYS else ""
        lines.append(f"  {way:<18} {spread(measured)} GB/s{ratio}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{machine.describe()}\nn {options.rounds} rounds of {TOTAL_BYTES >> 20} MiB, median (least–greatest)")
    for shape in SHAPES:
        print(table(shape, measure(shape, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
