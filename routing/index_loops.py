"""The compiled loops of `routing.index_entries` over the keys of a whole prompt or event.

An entry is a number: `keys` and `held` give each its key and the set of places where that lies, itself a number.
`slots` is a hash table of entries (open addressing, linear probing): an entry plus one, or 0.
`sets` has a row for each set of places: how many keys lie in exactly these, and to which set they move in which batch.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from routing.compiled import compiled

Keys: TypeAlias = NDArray[np.uint64]
Numbers: TypeAlias = NDArray[np.int32]
Rows: TypeAlias = NDArray[np.int64]

USED: Final = 0
TO: Final = 1
BATCH: Final = 2

NOWHERE: Final = 0
"""The set without a place."""

REFUSED: Final = -1
"""Instead of a set to move to: the key stays where it is, and is counted."""


@compiled
def _slot(slots: Numbers, keys: Keys, key: np.uint64) -> np.int64:
    """The slot with the key's entry, or the empty one where it would be."""
    mixed = (key ^ (key >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
    slot = np.int64(((mixed >> np.uint64(32)) * np.uint64(len(slots))) >> np.uint64(32))
    while slots[slot] and keys[slots[slot] - 1] != key:
        slot += 1
        if slot == len(slots):
            slot = np.int64(0)
    return slot


@compiled
def _entry(slots: Numbers, keys: Keys, count: int, key: np.uint64, near: np.int64) -> np.int64:
    """The key's entry, or -1. It is mostly behind the entry `near`, or before it in an eviction from a prompt's end."""
    if near + 1 < count and keys[near + 1] == key:
        return near + 1
    if near > 0 and keys[near - 1] == key:
        return near - 1
    return np.int64(slots[_slot(slots, keys, key)]) - 1


@compiled
def runs(slots: Numbers, keys: Keys, held: Numbers, count: int, prompt: Keys, start: int) -> Rows:
    """From block `start` on, up to the first that lies nowhere, the runs of blocks in one set: a row of set and end."""
    found = np.empty((len(prompt) - start, 2), np.int64)
    length, entry, before = 0, np.int64(-1), NOWHERE
    for block in range(start, len(prompt)):
        entry = _entry(slots, keys, count, prompt[block], entry)
        if entry < 0 or held[entry] == NOWHERE:
            break
        if held[entry] != before:
            before = held[entry]
            found[length, 0] = before
            length += 1
        found[length - 1, 1] = block + 1
    return found[:length]


@compiled
def move(
    slots: Numbers, keys: Keys, held: Numbers, count: int, sets: Rows, batch: int, moving: Keys, start: int
) -> tuple[int, int, int, int, int]:
    """Keys from `start` on move to the sets that the batch says, each with an entry of its own from then on.

    It stops before a key of whose set the batch says nothing, or for whose entry there is no room. Then it tells how
    many entries there are, how many keys are done, the set of the next, and how many moved and were refused.
    """
    moved, refused, entry = 0, 0, np.int64(-1)
    for number in range(start, len(moving)):
        key = moving[number]
        entry = _entry(slots, keys, count, key, entry)
        old = int(held[entry]) if entry >= 0 else NOWHERE
        new = sets[old, TO]
        if sets[old, BATCH] != batch or (entry < 0 and new > NOWHERE and count == len(keys)):
            return count, number, old, moved, refused
        if new == REFUSED:
            refused += 1
        elif new != old:
            if entry < 0:
                entry = np.int64(count)
                count += 1
                slots[_slot(slots, keys, key)] = count
                keys[entry] = key
                sets[NOWHERE, USED] += 1
            held[entry] = new
            sets[old, USED] -= 1
            sets[new, USED] += 1
            moved += 1
    return count, len(moving), NOWHERE, moved, refused


@compiled
def fill(slots: Numbers, keys: Keys, count: int) -> None:
    """The first `count` keys, all different, come into an empty hash table."""
    for entry in range(count):
        slots[_slot(slots, keys, keys[entry])] = entry + 1
