"""Blocks that are on their way: what prompts in flight will bring to the devices they were placed on.

A promise covers a prompt's blocks from its first on, so that whatever a device is promised has all before it promised
too: `routing.prefix.nested_depths` may skip. Equal promises add up; a block is promised until the last of them ended.

Invariant (`check`): a device's bit is in a key's mask exactly while an open promise to it covers the key; `_again`
counts the promises beyond the first.
"""

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from routing.index_segments import mask_bytes

PROMISE_BYTES: Final = 512
"""One promise without its keys."""

PROMISED_KEY_BYTES: Final = 240
"""A key of a promise: its integer and its place in the prompt's list, its part of the table and of the counts."""

_IDLE_ENDS: Final = 64


@dataclass(frozen=True, slots=True)
class _Promise:
    bit: int
    keys: Sequence[int]


class Promises:
    """All open promises. Their numbers only grow."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self._again: dict[int, Counter[int]] = {}
        self._open: dict[int, _Promise] = {}
        self._ends: list[tuple[float, int]] = []
        self._next = 0
        self._keys = 0
        self._bits = 0

    @property
    def masks(self) -> Mapping[int, int]:
        """Key → the devices it is promised to. Read only."""
        return self._masks

    def __len__(self) -> int:
        return len(self._open)

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        return len(self._open) * PROMISE_BYTES + self._keys * self._key_bytes()

    def room(self, free_bytes: int) -> int:
        """How many keys of one more promise fit."""
        return max(0, free_bytes - PROMISE_BYTES) // self._key_bytes()

    def _key_bytes(self) -> int:
        return PROMISED_KEY_BYTES + mask_bytes(self._bits)

    def widen(self, bits: int) -> None:
        """Masks may have so many bits from now on."""
        self._bits = max(self._bits, bits)

    # Change

    def number(self) -> int:
        """A number of its own for a promise."""
        self._next += 1
        return self._next

    def add(self, bit: int, keys: Sequence[int], until: float) -> int:
        """The promise's number."""
        number = self.number()
        self._open[number] = _Promise(bit, keys)
        heapq.heappush(self._ends, (until, number))
        self._keys += len(keys)
        if self._masks.keys().isdisjoint(keys):
            self._masks.update(dict.fromkeys(keys, bit))
        else:
            self._merge(bit, keys)
        return number

    def _merge(self, bit: int, keys: Sequence[int]) -> None:
        masks, get = self._masks, self._masks.get
        again: list[int] = []
        before, after = 0, bit
        for key in keys:
            mask = get(key, 0)
            if mask & bit:
                again.append(key)
                continue
            if mask is not before:
                before, after = mask, mask | bit
            masks[key] = after
        if again:
            self._again.setdefault(bit, Counter()).update(again)

    def end(self, number: int) -> None:
        """Take it back. One that ended already is fine."""
        promise = self._open.pop(number, None)
        if promise is None:
            return
        self._keys -= len(promise.keys)
        once = self._count_down(promise)
        masks = self._masks
        if list(map(masks.get, once, repeat(0))).count(promise.bit) == len(once):
            deque(map(masks.pop, once), maxlen=0)
        else:
            self._split(promise.bit, once)
        self._forget_ends()

    def _count_down(self, promise: _Promise) -> Sequence[int]:
        """One promise less for each key; those that have none left."""
        again = self._again.get(promise.bit)
        if again is None:
            return promise.keys
        once: list[int] = []
        for key in promise.keys:
            count = again.get(key, 0)
            if count > 1:
                again[key] = count - 1
            elif count:
                del again[key]
            else:
                once.append(key)
        if not again:
            del self._again[promise.bit]
        return once

    def _split(self, bit: int, keys: Sequence[int]) -> None:
        masks = self._masks
        before, after = bit, 0
        for key in keys:
            mask = masks[key]
            if mask is not before:
                before, after = mask, mask ^ bit
            if after:
                masks[key] = after
            else:
                del masks[key]

    def _forget_ends(self) -> None:
        """Promises are mostly taken back long before their time: their times must not pile up."""
        if len(self._ends) > 2 * len(self._open) + _IDLE_ENDS:
            self._ends = [end for end in self._ends if end[1] in self._open]
            heapq.heapify(self._ends)

    def expire(self, now: float) -> None:
        """End those whose time has come."""
        while self._ends and self._ends[0][0] <= now:
            self.end(heapq.heappop(self._ends)[1])

    def clear(self, bit: int) -> None:
        """End all promises to one device. O(open promises)."""
        for number in [number for number, promise in self._open.items() if promise.bit == bit]:
            self.end(number)

    # Truth

    def check(self) -> None:
        """Assert the invariant."""
        counts: dict[int, Counter[int]] = {}
        for promise in self._open.values():
            counts.setdefault(promise.bit, Counter()).update(promise.keys)
        masks: Counter[int] = Counter()
        for bit, keys in counts.items():
            masks.update(dict.fromkeys(keys, bit))
        assert masks == self._masks, "masks are not those of the open promises"
        again = {bit: {key: count - 1 for key, count in keys.items() if count > 1} for bit, keys in counts.items()}
        assert {bit: dict(keys) for bit, keys in self._again.items()} == {bit: k for bit, k in again.items() if k}
        assert self._keys == sum(len(promise.keys) for promise in self._open.values())
        assert self._open.keys() <= {number for _, number in self._ends}, "a promise would never end"
        assert len(self._ends) <= 2 * len(self._open) + _IDLE_ENDS + 1
