"""Sets of places, each under a number: few, however many keys lie there. What a mask's bits mean is for others to know.

A number is given back as soon as no key lies in its set; the next new set gets it.

Invariant (`check`): no two numbers stand for the same mask, those in use stand for one that is not empty and has keys.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from routing.index_loops import BATCH, NOWHERE, TO, USED, Rows

_SET_BYTES: Final = 192
"""Besides its row and its mask: both lists' items, at most 120 bytes of a dict's table, and its number."""


def mask_bytes(bits: int) -> int:
    """The memory of a mask of so many bits in CPython 3.11: 30 of them in 4 bytes, a head of 24, in units of 16."""
    return (24 + 4 * (bits // 30 + 1) + 15) // 16 * 16


class PlaceSets:
    """All sets that some key lies in, and `NOWHERE`. `rows` are for the compiled loops."""

    def __init__(self) -> None:
        self.bits = 0
        self._batch = 0
        self._in_batch: list[int] = []
        self.rows: Rows = np.zeros((1, 3), np.int64)
        self._start_over()

    def _start_over(self) -> None:
        self.rows = self.rows[:1].copy()
        self.masks = [0]
        self._numbers = {0: NOWHERE}
        self._free: list[int] = []

    def __iter__(self) -> Iterator[int]:
        """Numbers in use."""
        return (number for number, mask in enumerate(self.masks) if mask)

    def bytes(self) -> int:
        """An upper bound of the memory taken."""
        return self.rows.nbytes + (len(self.masks) - 1) * self._set_bytes()

    def more_bytes(self, mask: int) -> int:
        """What the set adds to that."""
        if mask in self._numbers or self._free:
            return 0
        return self._set_bytes() + (self.rows.nbytes if len(self.masks) == len(self.rows) else 0)

    def _set_bytes(self) -> int:
        return _SET_BYTES + mask_bytes(self.bits)

    # Numbers

    def number(self, mask: int) -> int:
        """Of the set with this mask, which is new if there was none."""
        number = self._numbers.get(mask)
        if number is None:
            number = self._free.pop() if self._free else len(self.masks)
            self.masks[number : number + 1] = [mask]
            self._numbers[mask] = number
            if number == len(self.rows):
                self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
        return number

    def known(self, mask: int) -> int | None:
        """The number of the set with this mask, None when no key lies in exactly these places."""
        return self._numbers.get(mask)

    def release(self, numbers: Iterable[int]) -> None:
        """Those of them in which no key lies are given back."""
        for number in numbers:
            if self.masks[number] and not self.rows[number, USED]:
                del self._numbers[self.masks[number]]
                self.masks[number] = 0
                self._free.append(number)
        if len(self._free) == len(self.masks) - 1:
            self._start_over()

    # Batches

    def begin(self) -> int:
        """The number of a batch that says of no set yet where its keys move."""
        self._batch += 1
        return self._batch

    def say(self, old: int, new: int) -> None:
        """Keys of one set move to another in this batch."""
        self.rows[old, TO], self.rows[old, BATCH] = new, self._batch
        self._in_batch += (old, max(new, NOWHERE))

    def end(self) -> None:
        """The batch is done."""
        self.release(self._in_batch)
        self._in_batch.clear()

    # Truth

    def check(self) -> None:
        """Assert the invariant."""
        assert self._numbers == {self.masks[number]: number for number in (NOWHERE, *self)}
        assert sorted([NOWHERE, *self, *self._free]) == list(range(len(self.masks)))
        assert all(self.rows[number, USED] > 0 for number in self), "a set without keys is kept"
        assert all(mask.bit_length() <= self.bits for mask in self.masks)
