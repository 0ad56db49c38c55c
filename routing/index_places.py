"""Where blocks are: key → set of places. A place is one bit; what bits mean is for others to know.

Invariant (`check`): the parts' own, and the count of pairs.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from routing.index_entries import ENTRY_BYTES, Entries
from routing.index_loops import NOWHERE, REFUSED, USED
from routing.index_sets import PlaceSets
from routing.packed_keys import PackedKeys
from routing.prefix import Run

_FEWEST: Final = 64
"""Entries that there is room for as soon as there is one."""


class Places:
    """All blocks and where they lie."""

    def __init__(self) -> None:
        self._entries = Entries()
        self._sets = PlaceSets()
        self._held = 0

    @property
    def held(self) -> int:
        """Pairs of a key and a place."""
        return self._held

    def __len__(self) -> int:
        """Different keys."""
        return len(self._entries) - int(self._sets.rows[NOWHERE, USED])

    def mask(self) -> int:
        """All places that hold something."""
        mask = 0
        for number in self._sets:
            mask |= self._sets.masks[number]
        return mask

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        return self._entries.bytes() + self._sets.bytes()

    def widen(self, bits: int) -> None:
        """Masks may have so many bits from now on."""
        self._sets.bits = max(self._sets.bits, bits)

    def runs(self, prompt: PackedKeys, start: int = 0) -> list[Run]:
        """The runs of a prompt from block `start` on, up to the first that lies nowhere."""
        masks = self._sets.masks
        return [Run(masks[number], end) for number, end in self._entries.runs(np.frombuffer(prompt, np.uint64), start)]

    # Change

    def add(self, bit: int, keys: PackedKeys, limit_bytes: int) -> int:
        """These keys are in that place, as far as they fit into `limit_bytes` with all there is; how many do not."""
        sets = self._sets

        def with_bit(old: int) -> int:
            mask = sets.masks[old] | bit
            if mask == sets.masks[old]:
                return old
            if self.bytes() + sets.more_bytes(mask) > limit_bytes:
                return REFUSED
            if old == NOWHERE and self._entries.full and not self._make_room(limit_bytes - sets.more_bytes(mask)):
                return REFUSED
            return sets.number(mask)

        moved, refused = self._move(keys, with_bit, NOWHERE)
        self._held += moved
        return refused

    def remove(self, bit: int, keys: PackedKeys) -> None:
        """These keys are not in that place (any more)."""
        sets = self._sets
        moved, _ = self._move(keys, lambda old: sets.number(sets.masks[old] & ~bit), sets.known(bit))
        self._held -= moved
        self._tidy()

    def clear(self, places: int) -> None:
        """Nothing is in those places."""
        self._empty(places)
        self._tidy()

    def renew(self, bit: int, keys: PackedKeys, limit_bytes: int) -> int:
        """These keys and no others are in that place, as far as they fit; how many do not."""
        self._empty(bit)
        refused = self.add(bit, keys, limit_bytes)
        self._tidy()
        return refused

    def _move(self, keys: PackedKeys, other: Callable[[int], int], mostly: int | None) -> tuple[int, int]:
        """Each key moves from its set to the `other`; how many moved and how many were refused.

        Where they are `mostly` in one set, saying so saves a call.
        """
        moving = np.frombuffer(keys, np.uint64)
        batch = self._sets.begin()
        if mostly is not None:
            self._sets.say(mostly, other(mostly))
        done = moved = refused = 0
        while True:
            step = self._entries.move(self._sets.rows, batch, moving, done)
            done, moved, refused = step.done, moved + step.moved, refused + step.refused
            if done == len(moving):
                break
            self._sets.say(step.next_set, other(step.next_set))
        self._sets.end()
        return moved, refused

    def _empty(self, places: int) -> None:
        sets = self._sets
        others: dict[int, int] = {}
        for old in list(sets):
            mask = sets.masks[old]
            if mask & places:
                others[old] = sets.number(mask & ~places)
                self._held -= int(sets.rows[old, USED]) * (mask & places).bit_count()
        if others:
            self._entries.replace(sets.rows, others)
            sets.release(others)

    # Room

    def _make_room(self, limit_bytes: int) -> bool:
        """Room for twice the keys there are, or what fits; not for less than an eighth more, which would not pay."""
        keys, affordable = len(self), (limit_bytes - self._sets.bytes()) // ENTRY_BYTES
        capacity = min(max(2 * keys, _FEWEST), affordable)
        if capacity - keys <= keys // 8:
            return False
        self._entries.rebuild(self._sets.rows, capacity)
        return True

    def _tidy(self) -> None:
        """Give back what is not needed any more."""
        if self._entries.capacity > max(8 * len(self), _FEWEST):
            self._entries.rebuild(self._sets.rows, max(2 * len(self), _FEWEST))

    # Truth

    def check(self) -> None:
        """Assert the invariant. O(keys × places)."""
        sets = self._sets
        sets.check()
        self._entries.check(sets.rows)
        assert self._held == sum(int(sets.rows[number, USED]) * sets.masks[number].bit_count() for number in sets)
