"""Where blocks are: key → mask of places. A place is one bit; what bits mean is for others to know.

Blocks come and are asked for in the order of prompts. So neighbours that lie in the same places are kept as one
segment: an array of keys and one mask. A prompt is then read by comparing arrays, many times as fast as finding each
block, and exact: a block that goes, or comes to another place, is split from its neighbours.

Invariant (`check`): no mask is empty, and each place has the segments with its bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from routing.index_table import KEY_BYTES, LONGEST, SegmentTable, Stretch
from routing.packed_keys import PackedKeys, pack
from routing.prefix import Run

SPAN_BYTES: Final = 128
"""A segment in a place: its part of a set's table, at most."""


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
    """The segments, and which of them each place has."""

    def __init__(self) -> None:
        self._table = SegmentTable()
        self._places: dict[int, _Place] = {}
        self._spans = 0
        self._held = 0

    @property
    def held(self) -> int:
        """Pairs of a key and a place."""
        return self._held

    def __len__(self) -> int:
        """Different keys."""
        return len(self._table)

    def places(self) -> int:
        """The mask of all places that hold something."""
        return sum(self._places)

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        return self._table.bytes() + self._spans * SPAN_BYTES

    def widen(self, bits: int) -> None:
        """Masks may have so many bits from now on."""
        self._table.bits = max(self._table.bits, bits)

    def runs(self, keys: PackedKeys, start: int = 0) -> list[Run]:
        """The runs of a prompt from block `start` on, up to the first that lies nowhere."""
        return self._table.runs(keys, start)

    # Blocks come

    def add(self, bit: int, keys: list[int], limit_bytes: int) -> int:
        """These keys are in that place, as far as they fit into `limit_bytes` with all there is; how many do not.

        Raises OverflowError, and changes nothing, for what is not 64 bits.
        """
        packed, table = pack(keys), self._table
        start, refused = 0, 0
        all_new = True
        while start < len(keys):
            segment = table.find(keys[start])
            if segment is not None:
                stretch = table.stretch(packed, start, segment)
                end = start + stretch.end - stretch.start
                if not table.masks[segment] & bit:
                    refused += self._share(bit, stretch, limit_bytes)
            else:
                end = min(len(keys), start + LONGEST)
                all_new = all_new and self._append_new(bit, keys[start:end], packed[start:end], limit_bytes)
                if not all_new:
                    end = table.end_of_unknown(keys, start, end)
                    refused += self._append(bit, packed[start:end], limit_bytes)
            start = end
        return refused

    def _append_new(self, bit: int, keys: list[int], packed: PackedKeys, limit_bytes: int) -> bool:
        """A new segment, if they all lie nowhere yet and fit; else nothing changes."""
        if self._room(limit_bytes) < len(keys):
            return False
        segment = self._table.new_if_unknown(keys, packed)
        if segment is None:
            return False
        self._hold(bit, segment)
        return True

    def _append(self, bit: int, keys: PackedKeys, limit_bytes: int) -> int:
        """A new segment of keys that lie nowhere yet; how many do not fit."""
        fit = self._room(limit_bytes)
        if not fit:
            return len(keys)
        self._hold(bit, self._table.new(pack(dict.fromkeys(keys[:fit])), 0))
        return max(0, len(keys) - fit)

    def _room(self, limit_bytes: int) -> int:
        """How many keys of one more segment fit."""
        return max(0, limit_bytes - self.bytes() - self._table.segment_bytes() - SPAN_BYTES) // KEY_BYTES

    def _share(self, bit: int, stretch: Stretch, limit_bytes: int) -> int:
        """That part of a segment is in one more place; how many do not fit."""
        copies = 1 + self._table.masks[stretch.segment].bit_count()
        if self.bytes() + 2 * self._table.segment_bytes() + 2 * copies * SPAN_BYTES > limit_bytes:
            return stretch.end - stretch.start
        self._hold(bit, self._split(stretch))
        return 0

    def _hold(self, bit: int, segment: int) -> None:
        place = self._places.setdefault(bit, _Place())
        self._table.masks[segment] |= bit
        place.segments.add(segment)
        self._count(place, 1, len(self._table.keys[segment]))

    # Blocks go

    def remove(self, bit: int, keys: list[int]) -> None:
        """These keys are not in that place (any more)."""
        packed, table = pack(keys), self._table
        start = 0
        while start < len(keys):
            segment = table.find(keys[start])
            if segment is None or not table.masks[segment] & bit:
                start += 1
                continue
            stretch = table.backward(packed, start, table.stretch(packed, start, segment))
            end = start + stretch.end - stretch.start
            self._release(bit, self._split(stretch), keys[start:end])
            start = end
        table.tidy()

    def keep(self, bit: int, keys: Iterable[int]) -> None:
        """No other keys are in that place."""
        place = self._places.get(bit)
        if place is not None:
            kept, table = set(keys), self._table
            self.remove(bit, [key for segment in place.segments for key in table.keys[segment] if key not in kept])

    def clear(self, bit: int) -> None:
        """Nothing is in that place."""
        place = self._places.get(bit)
        if place is not None:
            for segment in list(place.segments):
                self._release(bit, segment, self._table.keys[segment])
            self._table.tidy()

    def _release(self, bit: int, segment: int, keys: Iterable[int]) -> None:
        """A segment, which has these keys, is not in that place any more."""
        place, table = self._places[bit], self._table
        table.masks[segment] ^= bit
        place.segments.remove(segment)
        self._count(place, -1, -len(table.keys[segment]))
        if not place.segments:
            del self._places[bit]
        if not table.masks[segment]:
            table.erase(segment, keys)

    def _count(self, place: _Place, spans: int, held: int) -> None:
        self._spans += spans
        place.held += held
        self._held += held

    # Segments part and join

    def _split(self, stretch: Stretch) -> int:
        """The segment of exactly those keys, cut from its neighbours."""
        segment, start, end = stretch
        if end < len(self._table.keys[segment]):
            segment = self._cut(segment, end)[0]
        return self._cut(segment, start)[1] if start else segment

    def _cut(self, segment: int, at: int) -> tuple[int, int]:
        parts = self._table.cut(segment, at)
        moved = parts[0] if parts[1] == segment else parts[1]
        self._enter(moved, [self._places[bit] for bit in bits_of(self._table.masks[segment])])
        return parts

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
        places, table = [self._places[bit] for bit in bits_of(mask)], self._table
        start = 0
        while start < len(keys):
            segment = table.find(keys[start])
            assert segment is not None, "a run of blocks that lie nowhere"
            stretch = table.stretch(keys, start, segment)
            self._leave(self._split(stretch), places)
            start += stretch.end - stretch.start
        self._enter(table.new(keys, mask), places)

    def _leave(self, segment: int, places: Sequence[_Place]) -> None:
        for place in places:
            place.segments.remove(segment)
        self._spans -= len(places)
        self._table.vacate(segment)

    def _enter(self, segment: int, places: Sequence[_Place]) -> None:
        for place in places:
            place.segments.add(segment)
        self._spans += len(places)

    # Truth

    def check(self) -> None:
        """Assert the invariant. O(keys × places)."""
        table = self._table
        table.check()
        placed: dict[int, set[int]] = {}
        for segment, mask in enumerate(table.masks):
            for bit in bits_of(mask):
                placed.setdefault(bit, set()).add(segment)
        assert {bit: place.segments for bit, place in self._places.items()} == placed
        for place in self._places.values():
            assert place.held == sum(len(table.keys[segment]) for segment in place.segments)
        assert self._held == sum(place.held for place in self._places.values())
        assert self._spans == sum(map(len, placed.values()))
