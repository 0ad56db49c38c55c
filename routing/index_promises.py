"""Blocks that are on their way: what prompts in flight will bring to the devices they were placed on.

A promise covers a prompt from its first block on. So promises form a tree, and only where they part is a block of
interest: a branch is an array of keys up to the next parting, found by its first key. Equal promises add up; a block is
promised until the last of them ended.

Invariant (`check`): every open promise is a path of whole branches, and a branch's counts are those of the promises
through it; there is no other branch. What is promised behind a branch is promised in it too.
"""

import heapq
from dataclasses import dataclass
from typing import Final

from routing.index_sets import mask_bytes
from routing.packed_keys import PackedKeys, common
from routing.prefix import Depth

PROMISE_BYTES: Final = 768
"""A promise and the branches that it adds, without their keys and masks."""

PROMISED_KEY_BYTES: Final = 16
"""A key: in the promise, and in its branch."""

_COUNT_BYTES: Final = 104
_IDLE_ENDS: Final = 64


@dataclass(frozen=True, slots=True)
class _Promise:
    bit: int
    keys: PackedKeys


class _Branch:
    """Blocks between two partings. `counts` are the promises through it, by the bit of their device."""

    __slots__ = ("counts", "keys", "mask")

    def __init__(self, keys: PackedKeys, counts: dict[int, int]) -> None:
        self.keys = keys
        self.counts = counts
        self.mask = sum(counts)


class Promises:
    """All open promises. Their numbers only grow."""

    def __init__(self) -> None:
        self._branches: dict[int, _Branch] = {}
        self._open: dict[int, _Promise] = {}
        self._ends: list[tuple[float, int]] = []
        self._next = 0
        self._keys = 0
        self._counts = 0
        self._bits = 0

    def __len__(self) -> int:
        return len(self._open)

    def places(self) -> int:
        """The mask of all devices that are promised something."""
        mask = 0
        for branch in self._branches.values():
            mask |= branch.mask
        return mask

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        promises = len(self._open) * PROMISE_BYTES + self._keys * PROMISED_KEY_BYTES
        return promises + len(self._branches) * (PROMISE_BYTES + mask_bytes(self._bits)) + self._counts * _COUNT_BYTES

    def room(self, free_bytes: int) -> int:
        """How many keys of one more promise fit, whatever promises it is parted from."""
        most_counts = len(self._branches) + 1 + self._bits
        branches = 2 * (PROMISE_BYTES + mask_bytes(self._bits)) + most_counts * _COUNT_BYTES
        return max(0, free_bytes - PROMISE_BYTES - branches) // PROMISED_KEY_BYTES

    def widen(self, bits: int) -> None:
        """Masks may have so many bits from now on."""
        self._bits = max(self._bits, bits)

    # Question

    def depths(self, keys: PackedKeys) -> list[Depth]:
        """How far a prompt is promised to each device."""
        found: list[Depth] = []
        start, mask = 0, 0
        while start < len(keys) and (branch := self._branches.get(keys[start])) is not None:
            if mask not in (0, branch.mask):
                found.append(Depth(mask, start))
            mask = branch.mask
            shared = common(keys, start, branch.keys, 0)
            start += shared
            if shared < len(branch.keys):
                break
        if start:
            found.append(Depth(mask, start))
        return found

    # Change

    def number(self) -> int:
        """A number of its own for a promise."""
        self._next += 1
        return self._next

    def add(self, bit: int, keys: PackedKeys, until: float) -> int:
        """The promise's number."""
        number = self.number()
        self._open[number] = _Promise(bit, keys)
        heapq.heappush(self._ends, (until, number))
        self._keys += len(keys)
        start = 0
        while start < len(keys):
            branch = self._branches.get(keys[start])
            if branch is None:
                branch = self._branches[keys[start]] = _Branch(keys[start:], {})
            elif (shared := common(keys, start, branch.keys, 0)) < len(branch.keys):
                self._part(branch, shared)
            self._count(branch, bit, 1)
            start += len(branch.keys)
        return number

    def _part(self, branch: _Branch, at: int) -> None:
        """What is behind becomes a branch of its own."""
        behind = _Branch(branch.keys[at:], dict(branch.counts))
        self._branches[behind.keys[0]] = behind
        self._counts += len(behind.counts)
        del branch.keys[at:]

    def _count(self, branch: _Branch, bit: int, change: int) -> None:
        counts = branch.counts
        before = counts.get(bit, 0)
        if before + change:
            counts[bit] = before + change
        else:
            del counts[bit]
        if not before or not before + change:
            branch.mask ^= bit
            self._counts += change

    def end(self, number: int) -> None:
        """Take it back. One that ended already is fine."""
        promise = self._open.pop(number, None)
        if promise is None:
            return
        keys, start = promise.keys, 0
        self._keys -= len(keys)
        while start < len(keys):
            branch = self._branches[keys[start]]
            self._count(branch, promise.bit, -1)
            if not branch.counts:
                del self._branches[keys[start]]
            start += len(branch.keys)
        self._forget_ends()

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
        counts: dict[int, dict[int, int]] = {}
        for promise in self._open.values():
            start, within = 0, -1
            while start < len(promise.keys):
                first = promise.keys[start]
                branch = self._branches[first]
                assert branch.keys == promise.keys[start : start + len(branch.keys)], "a promise ends within a branch"
                assert branch.mask & within == branch.mask, "promised, and what comes before is not"
                own = counts.setdefault(first, {})
                own[promise.bit] = own.get(promise.bit, 0) + 1
                start, within = start + len(branch.keys), branch.mask
        assert {first: branch.counts for first, branch in self._branches.items()} == counts
        assert all(branch.mask == sum(branch.counts) for branch in self._branches.values())
        assert self._counts == sum(map(len, counts.values()))
        assert self._keys == sum(len(promise.keys) for promise in self._open.values())
        assert self._open.keys() <= {number for _, number in self._ends}, "a promise would never end"
        assert len(self._ends) <= 2 * len(self._open) + _IDLE_ENDS + 1
