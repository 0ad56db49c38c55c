"""Where blocks are: key → mask of places. A place is one bit; what bits mean is for others to know.

Each place keeps a log of the keys that came to it, so that it can be cleared without a look at all the others'. A log
may name keys that went, and keys twice; it is written anew when it is `LOG_SLACK` times as long as need be.

Memory is accounted with constants that bound what CPython 3.11 takes on a 64-bit machine:
    a key: 48 bytes for its integer, at most 120 for its part of the table (a dict's table of 2^n slots takes 20·2^n
        bytes and is grown to less than 6 slots a key; it is rebuilt when keys went and more is empty);
    a place of a key: 9 bytes in a log (8, and what an array keeps in reserve), times `LOG_SLACK`;
    a key with several places: its mask, an integer of its own at worst.

Invariant (`check`): no mask is empty; `held` of a place is the number of keys with its bit, which its log names all.
"""

import sys
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

KEY_BYTES: Final = 168
LOG_SLACK: Final = 3
PLACE_BYTES: Final = 9 * LOG_SLACK
_TABLE_BYTES: Final = 120
_SMALL_TABLE_BYTES: Final = 65_536
_SMALL_LOG: Final = 256


def mask_bytes(bits: int) -> int:
    """The memory of a mask of so many bits: 30 of them in 4 bytes, a head of 24, all in units of 16."""
    return (24 + 4 * (bits // 30 + 1) + 15) // 16 * 16


@dataclass(slots=True)
class _Place:
    bit: int
    log: "array[int]" = field(default_factory=lambda: array("Q"))
    held: int = 0


class Places:
    """The map, and a log for each place."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self._places: dict[int, _Place] = {}
        self._held = 0
        self._bits = 0

    @property
    def masks(self) -> Mapping[int, int]:
        """Read only; another object after a change."""
        return self._masks

    @property
    def held(self) -> int:
        """Pairs of a key and a place."""
        return self._held

    def __len__(self) -> int:
        return len(self._masks)

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        return self._bytes(len(self._masks), self._held)

    def most_bytes(self, keys: int) -> int:
        """The most memory that so many more keys in one place can take."""
        return keys * (PLACE_BYTES + max(KEY_BYTES, mask_bytes(self._bits)))

    def _bytes(self, keys: int, held: int) -> int:
        return keys * KEY_BYTES + held * PLACE_BYTES + min(keys, held - keys) * mask_bytes(self._bits)

    def widen(self, bits: int) -> None:
        """Masks may have so many bits from now on."""
        self._bits = max(self._bits, bits)

    # Change

    def add(self, bit: int, keys: Sequence[int]) -> None:
        """These keys are in that place. Raises OverflowError, and changes nothing, for what is not 64 bits."""
        if not keys:
            return
        place = self._places.get(bit) or _Place(bit)
        masks = self._masks
        new = masks.keys().isdisjoint(keys)
        fresh = dict.fromkeys(keys, place.bit) if new else self._merged(place.bit, keys)
        place.log.fromlist(list(fresh))
        self._places[bit] = place
        masks.update(fresh)
        self._count(place, len(fresh))

    def _merged(self, bit: int, keys: Sequence[int]) -> dict[int, int]:
        """The new masks of those keys that the place lacks. Neighbours mostly have equal masks, and share an object."""
        fresh: dict[int, int] = {}
        get = self._masks.get
        before, after = 0, bit
        for key in keys:
            mask = get(key, 0)
            if not mask & bit:
                if mask is not before:
                    before, after = mask, mask | bit
                fresh[key] = after
        return fresh

    def remove(self, bit: int, keys: Sequence[int]) -> None:
        """These keys are not in that place (any more)."""
        place = self._places.get(bit)
        if place is None:
            return
        masks = self._masks
        known = len(masks)
        if list(map(masks.get, keys, repeat(0))).count(bit) == len(keys):
            deque(map(masks.pop, keys, repeat(None)), maxlen=0)
            self._count(place, len(masks) - known)
        else:
            self._count(place, -self._split(bit, keys))
        self._tidy(place)

    def _split(self, bit: int, keys: Sequence[int]) -> int:
        """Take the bit from all masks; how many had it."""
        masks, get = self._masks, self._masks.get
        before, after, taken = bit, 0, 0
        for key in keys:
            mask = get(key, 0)
            if mask & bit:
                taken += 1
                if mask is not before:
                    before, after = mask, mask ^ bit
                if after:
                    masks[key] = after
                else:
                    del masks[key]
        return taken

    def keep(self, bit: int, keys: Iterable[int]) -> None:
        """No other keys are in that place."""
        place = self._places.get(bit)
        if place is not None:
            kept = set(keys)
            self.remove(bit, [key for key in place.log if key not in kept])

    def clear(self, bit: int) -> None:
        """Nothing is in that place."""
        place = self._places.get(bit)
        if place is not None:
            self.remove(bit, place.log.tolist())

    def fitting(self, bit: int, keys: Sequence[int], limit_bytes: int) -> list[int]:
        """Those of `keys`, in order, that the place holds already or that fit into `limit_bytes` with all there is."""
        chosen: dict[int, None] = {}
        count, held = len(self._masks), self._held
        for key in keys:
            mask = self._masks.get(key, 0)
            if mask & bit or key in chosen:
                continue
            if self._bytes(count + (not mask), held + 1) <= limit_bytes:
                chosen[key] = None
                count, held = count + (not mask), held + 1
        return list(chosen)

    def lacking(self, bit: int, keys: Iterable[int]) -> int:
        """How many of `keys` are not in that place."""
        return sum(not self._masks.get(key, 0) & bit for key in set(keys))

    def _count(self, place: _Place, change: int) -> None:
        place.held += change
        self._held += change

    def _tidy(self, place: _Place) -> None:
        if not place.held:
            del self._places[place.bit]
        elif len(place.log) > LOG_SLACK * place.held + _SMALL_LOG:
            masks = map(self._masks.get, place.log, repeat(0))
            live = dict.fromkeys(key for key, mask in zip(place.log, masks, strict=True) if mask & place.bit)
            place.log = array("Q", live)
        if sys.getsizeof(self._masks) > _TABLE_BYTES * len(self._masks) + _SMALL_TABLE_BYTES:
            self._masks = dict(self._masks)

    # Truth

    def check(self) -> None:
        """Assert the invariant. O(keys × places)."""
        assert all(self._masks.values()), "an empty mask is kept"
        held: dict[int, set[int]] = {}
        for key, mask in self._masks.items():
            while mask:
                bit = mask & -mask
                held.setdefault(bit, set()).add(key)
                mask ^= bit
        assert {bit: place.held for bit, place in self._places.items()} == {b: len(keys) for b, keys in held.items()}
        assert self._held == sum(map(len, held.values()))
        for bit, place in self._places.items():
            assert bit == place.bit
            assert held[bit] <= set(place.log), "a log lacks keys"
            assert len(place.log) <= LOG_SLACK * place.held + _SMALL_LOG, "a log is too long"
        assert sys.getsizeof(self._masks) <= _TABLE_BYTES * len(self._masks) + _SMALL_TABLE_BYTES
