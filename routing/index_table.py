"""Blocks in segments: key → segment, and each segment's keys and mask. What a mask's bits mean is for others to know.

A segment is a number, so that the map is one from integers to integers, which the garbage collector never visits.

Memory is accounted with constants that bound what CPython 3.11 takes on a 64-bit machine:
    a key: 48 bytes for its integer, 8 in its segment, and at most 120 for its part of the table (a dict's table of 2^n
        slots takes 20·2^n bytes and is grown to less than 6 slots a key; it is rebuilt when more is empty);
    a segment: its array, mask and number.

Invariant (`check`): the map leads from every key to the segment that has it, in which no key is twice and at most
`LONGEST` are; numbers without a segment are free.
"""

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from routing.packed_keys import PackedKeys, common, pack, position
from routing.prefix import Run

LONGEST: Final = 256
"""Keys of one segment: what a split may have to move, and a search in it to look at."""

KEY_BYTES: Final = 176
_SEGMENT_BYTES: Final = 144
_FREE_BYTES: Final = 64
_TABLE_BYTES: Final = 120
_SMALL_TABLE_BYTES: Final = 65_536
_NO_KEYS: Final = pack(())


def mask_bytes(bits: int) -> int:
    """The memory of a mask of so many bits: 30 of them in 4 bytes, a head of 24, all in units of 16."""
    return (24 + 4 * (bits // 30 + 1) + 15) // 16 * 16


class Stretch(NamedTuple):
    """Keys of one segment, from `start` to before `end`."""

    segment: int
    start: int
    end: int


class SegmentTable:
    """The map and the segments. Whoever changes `masks` keeps them from being empty."""

    def __init__(self) -> None:
        self.keys: list[PackedKeys] = []
        self.masks: list[int] = []
        self.bits = 0
        self._of: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """Different keys."""
        return len(self._of)

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        segments = (len(self.keys) - len(self._free)) * self.segment_bytes()
        return len(self._of) * KEY_BYTES + segments + len(self._free) * _FREE_BYTES

    def segment_bytes(self) -> int:
        """Of one more segment, without its keys."""
        return _SEGMENT_BYTES + mask_bytes(self.bits)

    # Question

    def find(self, key: int) -> int | None:
        """The segment that has it."""
        return self._of.get(key)

    def stretch(self, keys: PackedKeys, start: int, segment: int) -> Stretch:
        """What a segment has of the keys from `start` on, of which it has the first."""
        theirs = self.keys[segment]
        at = position(theirs, keys[start])
        return Stretch(segment, at, at + common(keys, start, theirs, at))

    def backward(self, keys: PackedKeys, start: int, stretch: Stretch) -> Stretch:
        """The same for keys in the opposite order, if that is more: engines evict the ends of prompts first."""
        segment, at, _ = stretch
        theirs = self.keys[segment]
        if not at or start + 1 == len(keys) or theirs[at - 1] != keys[start + 1]:
            return stretch
        return Stretch(segment, at + 1 - common(keys, start, theirs[at::-1], 0), at + 1)

    def runs(self, keys: PackedKeys, start: int = 0) -> list[Run]:
        """The runs of a prompt from block `start` on, up to the first that lies nowhere."""
        found: list[Run] = []
        get, size = self._of.get, len(keys)
        while start < size and (segment := get(first := keys[start])) is not None:
            theirs = self.keys[segment]
            if theirs[0] == first and keys[start : start + len(theirs)] == theirs:
                start += len(theirs)
            else:
                start += common(keys, start, theirs, position(theirs, first))
            found.append(Run(self.masks[segment], start))
        return found

    def end_of_unknown(self, keys: Sequence[int], start: int, end: int) -> int:
        """The first from behind `start` to `end` that some segment has."""
        return next((place for place in range(start + 1, end) if keys[place] in self._of), end)

    # Change

    def new(self, keys: PackedKeys, mask: int) -> int:
        """A segment of keys that lead nowhere, or to a segment that gives them up."""
        segment = self._number()
        self._of.update(dict.fromkeys(keys, segment))
        return self._enter(segment, keys, mask)

    def new_if_unknown(self, keys: Sequence[int], packed: PackedKeys) -> int | None:
        """A segment without a mask, if none has any of the keys yet; else nothing changes. Passes the map once."""
        segment, before = self._number(), len(self._of)
        deque(map(self._of.setdefault, keys, repeat(segment)), maxlen=0)
        if len(self._of) - before == len(keys):
            return self._enter(segment, packed, 0)
        for key in keys:
            if self._of.get(key) == segment:
                del self._of[key]
        if segment < len(self.keys):
            self._free.append(segment)
        return None

    def _number(self) -> int:
        return self._free.pop() if self._free else len(self.keys)

    def _enter(self, segment: int, keys: PackedKeys, mask: int) -> int:
        self.keys[segment : segment + 1] = [keys]
        self.masks[segment : segment + 1] = [mask]
        return segment

    def cut(self, segment: int, at: int) -> tuple[int, int]:
        """Both parts, of which the longer stays where it is."""
        keys = self.keys[segment]
        left = 2 * at < len(keys)
        part = slice(None, at) if left else slice(at, None)
        moved = self.new(keys[part], self.masks[segment])
        del keys[part]
        return (moved, segment) if left else (segment, moved)

    def erase(self, segment: int, keys: Iterable[int]) -> None:
        """A segment goes, and with it its keys."""
        deque(map(self._of.pop, keys), maxlen=0)
        self.vacate(segment)

    def vacate(self, segment: int) -> None:
        """A segment goes whose keys will be another's."""
        self.keys[segment] = _NO_KEYS
        self.masks[segment] = 0
        self._free.append(segment)

    def tidy(self) -> None:
        """A dict never shrinks by itself, nor do lists of numbers that are free."""
        if not self._of:
            for numbered in (self.keys, self.masks, self._free):
                numbered.clear()
        if sys.getsizeof(self._of) > _TABLE_BYTES * len(self._of) + _SMALL_TABLE_BYTES:
            self._of = dict(self._of)

    # Truth

    def check(self) -> None:
        """Assert the invariant."""
        segments = set(self._of.values())
        for segment in segments:
            assert self.masks[segment], "an empty mask is kept"
            assert 0 < len(self.keys[segment]) <= LONGEST
            assert all(self._of.get(key) == segment for key in self.keys[segment]), "a key leads elsewhere"
        assert sorted([*segments, *self._free]) == list(range(len(self.keys))) == list(range(len(self.masks)))
        assert len(self._of) == sum(map(len, self.keys)), "a key is twice in a segment, or in one that is gone"
        assert sys.getsizeof(self._of) <= _TABLE_BYTES * len(self._of) + _SMALL_TABLE_BYTES
        assert self.bits >= max((mask.bit_length() for mask in self.masks), default=0)
