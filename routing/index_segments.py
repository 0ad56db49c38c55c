"""Where blocks are: key → mask of places. A place is one bit; what bits mean is for others to know.

Blocks come and are asked for in the order of prompts. So neighbours that lie in the same places are kept as one
segment: an array of keys and one mask. A prompt is then read by comparing arrays, many times as fast as finding each
block, and exact: a block that goes, or comes to another place, is split from its neighbours.

Memory is accounted with constants that bound what CPython 3.11 takes on a 64-bit machine:
    a key: 48 bytes for its integer, 8 in its segment, and at most 120 for its part of the table (a dict's table of 2^n
        slots takes 20·2^n bytes and is grown to less than 6 slots a key; it is rebuilt when more is empty);
    a segment: its array, mask and number; and in each place that holds it, its part of a set's table.

A segment is a number, so that the map is one from integers to integers, which the garbage collector never visits.

Invariant (`check`): the map leads from every key to the segment that has it, in which no key is twice and at most
`LONGEST` are; no mask is empty; each place has the segments with its bit; numbers without a segment are free.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, count, repeat
from operator import ne
from typing import Final

from routing.block_keys import PackedKeys, pack
from routing.prefix import Run

LONGEST: Final = 256
"""Keys of one segment: what a split may have to move, and a search in it to look at."""

KEY_BYTES: Final = 176
SPAN_BYTES: Final = 128
SEGMENT_BYTES: Final = 144
_FREE_BYTES: Final = 64
_TABLE_BYTES: Final = 120
_SMALL_TABLE_BYTES: Final = 65_536
_NO_KEYS: Final = pack(())


def mask_bytes(bits: int) -> int:
    """The memory of a mask of so many bits: 30 of them in 4 bytes, a head of 24, all in units of 16."""
    return (24 + 4 * (bits // 30 + 1) + 15) // 16 * 16


def bits_of(mask: int) -> Iterator[int]:
    """Its places, one by one."""
    while mask:
        yield (low := mask & -mask)
        mask ^= low


@dataclass(slots=True)
class _Place:
    segments: set[int] = field(default_factory=set)
    held: int = 0


class Segments:
    """The map, the segments, and which of them each place has."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._keys: list[PackedKeys] = []
        self._masks: list[int] = []
        self._free: list[int] = []
        self._places: dict[int, _Place] = {}
        self._spans = 0
        self._held = 0
        self._bits = 0

    @property
    def held(self) -> int:
        """Pairs of a key and a place."""
        return self._held

    def __len__(self) -> int:
        """Different keys."""
        return len(self._of)

    def places(self) -> int:
        """The mask of all places that hold something."""
        return sum(self._places)

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        segments = (len(self._keys) - len(self._free)) * self._segment_bytes() + self._spans * SPAN_BYTES
        return len(self._of) * KEY_BYTES + segments + len(self._free) * _FREE_BYTES

    def _segment_bytes(self) -> int:
        return SEGMENT_BYTES + mask_bytes(self._bits)

    def widen(self, bits: int) -> None:
        """Masks may have so many bits from now on."""
        self._bits = max(self._bits, bits)

    # Question

    def runs(self, keys: PackedKeys, start: int = 0) -> list[Run]:
        """The runs of a prompt from block `start` on, up to the first that lies nowhere."""
        found: list[Run] = []
        get, size = self._of.get, len(keys)
        while start < size and (segment := get(first := keys[start])) is not None:
            theirs = self._keys[segment]
            if theirs[0] == first and keys[start : start + len(theirs)] == theirs:
                start += len(theirs)
            else:
                start += _common(keys, start, theirs, _position(theirs, first))
            found.append(Run(self._masks[segment], start))
        return found

    # Change

    def add(self, bit: int, keys: list[int], limit_bytes: int) -> int:
        """These keys are in that place, as far as they fit into `limit_bytes` with all there is; how many do not.

        Raises OverflowError, and changes nothing, for what is not 64 bits.
        """
        packed = pack(keys)
        start, refused = 0, 0
        all_new = True
        while start < len(keys):
            segment = self._of.get(keys[start])
            if segment is not None:
                theirs = self._keys[segment]
                position = _position(theirs, keys[start])
                end = start + _common(packed, start, theirs, position)
                if not self._masks[segment] & bit:
                    refused += self._share(bit, segment, position, position + end - start, limit_bytes)
            else:
                end = min(len(keys), start + LONGEST)
                all_new = all_new and self._append_new(bit, keys[start:end], packed[start:end], limit_bytes)
                if not all_new:
                    end = self._end_of_unknown(keys, start, end)
                    refused += self._append(bit, packed[start:end], limit_bytes)
            start = end
        return refused

    def _append_new(self, bit: int, keys: list[int], packed: PackedKeys, limit_bytes: int) -> bool:
        """A new segment, if they all lie nowhere yet and fit; else nothing changes. Passes the table once."""
        if self._room(limit_bytes) < len(keys):
            return False
        segment, before = self._number(), len(self._of)
        deque(map(self._of.setdefault, keys, repeat(segment)), maxlen=0)
        if len(self._of) - before == len(keys):
            self._hold(bit, self._enter(segment, packed, 0))
            return True
        for key in keys:
            if self._of.get(key) == segment:
                del self._of[key]
        if segment < len(self._keys):
            self._free.append(segment)
        return False

    def _end_of_unknown(self, keys: list[int], start: int, end: int) -> int:
        return next((position for position in range(start + 1, end) if keys[position] in self._of), end)

    def _append(self, bit: int, keys: PackedKeys, limit_bytes: int) -> int:
        """A new segment of keys that lie nowhere yet; how many do not fit."""
        fit = self._room(limit_bytes)
        if not fit:
            return len(keys)
        self._hold(bit, self._new(pack(dict.fromkeys(keys[:fit])), 0))
        return max(0, len(keys) - fit)

    def _room(self, limit_bytes: int) -> int:
        """How many keys of one more segment fit."""
        return max(0, limit_bytes - self.bytes() - self._segment_bytes() - SPAN_BYTES) // KEY_BYTES

    def _share(self, bit: int, segment: int, start: int, end: int, limit_bytes: int) -> int:
        """That part of a segment is in one more place; how many do not fit."""
        copies = 1 + self._masks[segment].bit_count()
        if self.bytes() + 2 * self._segment_bytes() + 2 * copies * SPAN_BYTES > limit_bytes:
            return end - start
        self._hold(bit, self._split(segment, start, end))
        return 0

    def remove(self, bit: int, keys: list[int]) -> None:
        """These keys are not in that place (any more)."""
        packed = pack(keys)
        start = 0
        while start < len(keys):
            segment = self._of.get(keys[start])
            if segment is None or not self._masks[segment] & bit:
                start += 1
                continue
            theirs = self._keys[segment]
            position = _position(theirs, keys[start])
            length = _common(packed, start, theirs, position)
            if position and start + 1 < len(keys) and theirs[position - 1] == keys[start + 1]:
                length = _common(packed, start, theirs[position::-1], 0)
                position -= length - 1
            segment = self._split(segment, position, position + length)
            self._release(bit, segment, keys[start : start + length])
            start += length
        self._tidy()

    def keep(self, bit: int, keys: Iterable[int]) -> None:
        """No other keys are in that place."""
        place = self._places.get(bit)
        if place is not None:
            kept = set(keys)
            self.remove(bit, [key for segment in place.segments for key in self._keys[segment] if key not in kept])

    def clear(self, bit: int) -> None:
        """Nothing is in that place."""
        place = self._places.get(bit)
        if place is not None:
            for segment in list(place.segments):
                self._release(bit, segment, self._keys[segment])
            self._tidy()

    def _new(self, keys: PackedKeys, mask: int) -> int:
        """A segment of keys that lead nowhere, or elsewhere, so far."""
        segment = self._number()
        self._of.update(dict.fromkeys(keys, segment))
        return self._enter(segment, keys, mask)

    def _number(self) -> int:
        return self._free.pop() if self._free else len(self._keys)

    def _enter(self, segment: int, keys: PackedKeys, mask: int) -> int:
        self._keys[segment : segment + 1] = [keys]
        self._masks[segment : segment + 1] = [mask]
        return segment

    def _hold(self, bit: int, segment: int) -> None:
        place = self._places.setdefault(bit, _Place())
        self._masks[segment] |= bit
        place.segments.add(segment)
        self._count(place, 1, len(self._keys[segment]))

    def _release(self, bit: int, segment: int, keys: Iterable[int]) -> None:
        """A segment, which has these keys, is not in that place any more."""
        place = self._places[bit]
        self._masks[segment] ^= bit
        place.segments.remove(segment)
        self._count(place, -1, -len(self._keys[segment]))
        if not place.segments:
            del self._places[bit]
        if not self._masks[segment]:
            deque(map(self._of.pop, keys), maxlen=0)
            self._vacate(segment)

    def _count(self, place: _Place, spans: int, held: int) -> None:
        self._spans += spans
        place.held += held
        self._held += held

    def _split(self, segment: int, start: int, end: int) -> int:
        """The segment of exactly those keys, cut from its neighbours."""
        if end < len(self._keys[segment]):
            segment, _ = self._cut(segment, end)
        if start:
            _, segment = self._cut(segment, start)
        return segment

    def _cut(self, segment: int, at: int) -> tuple[int, int]:
        """Both parts. The longer stays where it is."""
        keys = self._keys[segment]
        left = 2 * at < len(keys)
        part = slice(None, at) if left else slice(at, None)
        moved = self._new(keys[part], self._masks[segment])
        del keys[part]
        self._join(moved, [self._places[bit] for bit in bits_of(self._masks[segment])])
        return (moved, segment) if left else (segment, moved)

    # Order

    def join(self, keys: PackedKeys, known: Sequence[Run]) -> None:
        """Neighbours in a prompt that lie in the same places become one segment: the next look is faster.

        Blocks that decode makes come one by one, between those of other prompts.
        """
        start = begun = 0
        for number, (mask, end) in enumerate(known, 1):
            following = known[number] if number < len(known) else Run(0, end)
            if following.mask != mask or following.end - start > LONGEST:
                if number - begun > 1:
                    self._merge(keys[start:end], mask)
                start, begun = end, number

    def _merge(self, keys: PackedKeys, mask: int) -> None:
        places = [self._places[bit] for bit in bits_of(mask)]
        start = 0
        while start < len(keys):
            segment = self._of[keys[start]]
            theirs = self._keys[segment]
            position = _position(theirs, keys[start])
            length = _common(keys, start, theirs, position)
            self._leave(self._split(segment, position, position + length), places)
            start += length
        self._join(self._new(keys, mask), places)

    def _leave(self, segment: int, places: Sequence[_Place]) -> None:
        for place in places:
            place.segments.remove(segment)
        self._spans -= len(places)
        self._vacate(segment)

    def _join(self, segment: int, places: Sequence[_Place]) -> None:
        for place in places:
            place.segments.add(segment)
        self._spans += len(places)

    def _vacate(self, segment: int) -> None:
        self._keys[segment] = _NO_KEYS
        self._masks[segment] = 0
        self._free.append(segment)

    def _tidy(self) -> None:
        """A dict never shrinks by itself, nor do lists of numbers that are free."""
        if not self._of:
            for numbered in (self._keys, self._masks, self._free):
                numbered.clear()
        if sys.getsizeof(self._of) > _TABLE_BYTES * len(self._of) + _SMALL_TABLE_BYTES:
            self._of = dict(self._of)

    # Truth

    def check(self) -> None:
        """Assert the invariant. O(keys × places)."""
        segments = set(self._of.values())
        placed: dict[int, set[int]] = {}
        for segment in segments:
            assert self._masks[segment], "an empty mask is kept"
            assert 0 < len(self._keys[segment]) <= LONGEST
            assert all(self._of.get(key) == segment for key in self._keys[segment]), "a key leads elsewhere"
            for bit in bits_of(self._masks[segment]):
                placed.setdefault(bit, set()).add(segment)
        assert sorted([*segments, *self._free]) == list(range(len(self._keys))) == list(range(len(self._masks)))
        assert len(self._of) == sum(map(len, self._keys)), "a key is twice in a segment, or in one that is gone"
        assert {bit: place.segments for bit, place in self._places.items()} == placed
        for place in self._places.values():
            assert place.held == sum(len(self._keys[segment]) for segment in place.segments)
        assert self._held == sum(place.held for place in self._places.values())
        assert self._spans == sum(map(len, placed.values()))
        assert sys.getsizeof(self._of) <= _TABLE_BYTES * len(self._of) + _SMALL_TABLE_BYTES
        assert self._bits >= max((mask.bit_length() for mask in self._masks), default=0)


def _position(keys: PackedKeys, key: int) -> int:
    if keys[0] == key:
        return 0
    return len(keys) - 1 if keys[-1] == key else keys.index(key)


def _common(keys: PackedKeys, start: int, others: PackedKeys, position: int) -> int:
    """How many keys from `start` on are equal to those of `others` from `position` on."""
    length = min(len(keys) - start, len(others) - position)
    mine, theirs = keys[start : start + length], others[position : position + length]
    return length if mine == theirs else next(compress(count(), map(ne, mine, theirs)))
