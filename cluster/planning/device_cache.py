"""The KV blocks of one simulated device: which content is there, who needs it, what goes first.

A block is free, idle (its content can be found, nobody needs it: evicted least recently used first) or held. A held
block has a key once its content is known, and is anonymous before. Keys are held by count; two requests with equal
prompts hold one block. Invariant: see `check`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster.planning.device_blocks import (
    among,
    blocks_of,
    evict,
    hold,
    idle_among,
    prefix,
    publish,
    release,
)
from routing.index_loops import Keys
from routing.packed_keys import PackedKeys, pack


@dataclass(frozen=True, slots=True)
class CacheChanges:
    """Keys that appeared, then keys that went. False when there are none."""

    stored: Sequence[int]
    removed: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.stored or self.removed)


NO_CHANGES: Final = CacheChanges((), ())


class DeviceCache:
    """Counts of anonymous, held and idle blocks, and those with a key. Everything is linear in the keys it is told."""

    def __init__(self, blocks: int) -> None:
        self._count = blocks
        self._blocks = blocks_of(blocks)
        self._anonymous = self._known = self._idle = 0
        self._stored: list[Keys] = []
        self._removed: list[Keys] = []

    def __repr__(self) -> str:
        return f"<DeviceCache held={self.held} idle={self._idle} of {self._count}>"

    @property
    def held(self) -> int:
        """Blocks that somebody needs."""
        return self._anonymous + self._known

    @property
    def available(self) -> int:
        """Blocks that can be allocated now, some by eviction."""
        return self._count - self.held

    @property
    def usage(self) -> float:
        """The share of the device that is held."""
        return self.held / self._count

    def prefix(self, keys: PackedKeys) -> int:
        """How many of the first blocks are here."""
        return prefix(self._blocks, _view(keys))

    def idle_among(self, keys: PackedKeys) -> int:
        """How many of these, all here, are held by nobody: holding them takes from what is available."""
        return idle_among(self._blocks, _view(keys))

    def hold(self, keys: PackedKeys) -> None:
        """Refer to blocks that are here."""
        self._woken(hold(self._blocks, _view(keys)))

    def allocate(self, count: int) -> None:
        """`count` anonymous blocks, evicting idle ones when none are free. There must be enough available."""
        assert count <= self.available, f"{count} blocks asked of {self!r}"
        self._anonymous += count
        excess = self.held + self._idle - self._count
        if excess > 0:
            self._removed.append(evict(self._blocks, excess))
            self._idle -= excess

    def publish(self, keys: PackedKeys) -> None:
        """An anonymous block each now has this content; where it is here already, the copy is given back."""
        stored, woken = publish(self._blocks, _view(keys))
        self._anonymous -= len(keys)
        self._woken(woken)
        if len(stored):
            self._known += len(stored)
            self._stored.append(stored)

    def release(self, keys: PackedKeys, anonymous: int) -> None:
        """Give up a chain of keys and `anonymous` blocks more; the end of the chain becomes the first to evict."""
        self._woken(-release(self._blocks, _view(keys)))
        self._anonymous -= anonymous

    def take_changes(self) -> CacheChanges:
        """Keys that appeared and keys that went since the last call, net of what came and went in between."""
        if not self._stored and not self._removed:
            return NO_CHANGES
        stored, removed = _joined(self._stored), _joined(self._removed)
        self._stored, self._removed = [], []
        if len(removed):
            stored, removed = among(self._blocks, stored, True), among(self._blocks, removed, False)
        return CacheChanges(_packed(stored), _packed(removed))

    def keys(self) -> set[int]:
        """Everything that can be found here."""
        return set(self._blocks.keys[self._entries()].tolist())

    def check(self) -> None:
        """Assert that every block is in exactly one place."""
        entries = self._entries()
        held = self._blocks.references[entries] > 0
        assert self._anonymous >= 0, "more anonymous blocks were given back than taken"
        assert np.array_equal(np.sort(entries), np.unique(entries)), "a block is found twice"
        assert (held.sum(), (~held).sum()) == (self._known, self._idle), f"miscounted: {self!r}"
        assert set(self._ring()) == set(entries[~held].tolist()), "idle blocks are not those that can be evicted"
        assert prefix(self._blocks, self._blocks.keys[entries]) == len(entries), "a key does not lead to its block"
        assert self.held + self._idle <= self._count, f"more blocks than the device has: {self!r}"

    def _entries(self) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
        slots = self._blocks.slots
        return slots[slots > 0] - np.int32(1)

    def _ring(self) -> list[int]:
        """Idle blocks in the order of eviction."""
        ring: list[int] = []
        entry = int(self._blocks.newer[self._count])
        while entry != self._count:
            ring.append(entry)
            entry = int(self._blocks.newer[entry])
        return ring

    def _woken(self, count: int) -> None:
        """So many blocks were idle and are held, or the reverse."""
        self._known += count
        self._idle -= count


def _view(keys: PackedKeys) -> Keys:
    return np.frombuffer(keys, np.uint64)


def _joined(parts: Sequence[Keys]) -> Keys:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _packed(keys: Keys) -> PackedKeys:
    packed = pack(())
    packed.frombytes(keys.tobytes())
    return packed
