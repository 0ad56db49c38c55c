"""Keys and the sets of places where they lie, as entries of three arrays that compiled loops run over.

Entries are in the order in which their keys came. Prompts come in order, so the next key of a prompt is mostly the next
entry's: a loop looks there first, at the speed of memory, and asks the hash table for the others. Where a key lies is
always told by its own entry.

An entry whose key lies nowhere any more stays until it is taken anew or the arrays are rebuilt: nothing is ever taken
out of the hash table. It is at most half full. A rebuild takes about 50 ms for a million keys; it is due once in as
many new keys as there were.

Invariant (`check`): an entry for each key, found by it, and no other key twice.
"""

from typing import Final, NamedTuple

import numpy as np

from routing.index_loops import NOWHERE, USED, Keys, Numbers, Rows, fill, move, runs

_SLOTS: Final = 2
"""For each entry."""

ENTRY_BYTES: Final = 12 + 4 * _SLOTS
"""A key, the number of a set, and its part of the hash table."""


class Moved(NamedTuple):
    """How many keys of a batch are done, the set of the next, and how many moved or were refused."""

    done: int
    next_set: int
    moved: int
    refused: int


class Entries:
    """All entries, with room for `capacity`."""

    def __init__(self) -> None:
        self._count = 0
        self._keys: Keys = np.empty(0, np.uint64)
        self._held: Numbers = np.empty(0, np.int32)
        self._slots: Numbers = np.zeros(1, np.int32)

    @property
    def capacity(self) -> int:
        """How many entries there can be without a rebuild."""
        return len(self._keys)

    @property
    def full(self) -> bool:
        """Whether there is no room for another."""
        return self._count == len(self._keys)

    def __len__(self) -> int:
        """Entries, those of keys that lie nowhere any more included."""
        return self._count

    def bytes(self) -> int:
        """The memory taken."""
        return self._keys.nbytes + self._held.nbytes + self._slots.nbytes

    def runs(self, prompt: Keys, start: int) -> list[list[int]]:
        """From block `start` on, up to the first that lies nowhere: a set, and the end of the blocks in it."""
        found: list[list[int]] = runs(self._slots, self._keys, self._held, self._count, prompt, start).tolist()
        return found

    def move(self, sets: Rows, batch: int, keys: Keys, start: int) -> Moved:
        """See `routing.index_loops.move`."""
        self._count, *told = move(self._slots, self._keys, self._held, self._count, sets, batch, keys, start)
        return Moved(*told)

    def replace(self, sets: Rows, others: dict[int, int]) -> None:
        """All keys of these sets move to the other ones."""
        new = np.arange(len(sets), dtype=np.int32)
        for old, other in others.items():
            new[old] = other
            sets[other, USED] += sets[old, USED]
            sets[old, USED] = 0
        self._held[: self._count] = new[self._held[: self._count]]

    def rebuild(self, sets: Rows, capacity: int) -> None:
        """Room for so many entries, without those of keys that lie nowhere, which it is enough for."""
        lie = np.flatnonzero(self._held[: self._count])
        keys, held = self._keys[lie], self._held[lie]
        self._count = len(lie)
        self._keys, self._held = np.empty(capacity, np.uint64), np.empty(capacity, np.int32)
        self._keys[: self._count], self._held[: self._count] = keys, held
        self._slots = np.zeros(max(1, _SLOTS * capacity), np.int32)
        fill(self._slots, self._keys, self._count)
        sets[NOWHERE, USED] = 0

    def check(self, sets: Rows) -> None:
        """Assert the invariant."""
        keys, held = self._keys[: self._count], self._held[: self._count]
        assert len(np.unique(keys)) == len(keys), "a key has two entries"
        assert np.array_equal(np.sort(self._slots[self._slots > 0]), 1 + np.arange(len(keys)))
        assert np.array_equal(np.bincount(held, minlength=len(sets)), sets[:, USED])
        lie = keys[held > NOWHERE]
        found = self.runs(np.concatenate([lie[::2], lie[1::2]]), 0)  # none of them behind its neighbour
        assert (found[-1][1] if found else 0) == len(lie), "a key does not lead to its entry"
