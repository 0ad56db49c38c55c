"""The compiled loops of `cluster.planning.device_cache` over the blocks of a whole prompt.

A block is an entry: `keys` and `references` give each its content and how many need it, -1 for one without a key.
`slots` is a hash table of entries that have a key (open addressing, linear probing): an entry plus one, or 0. Entries
that nobody needs are a ring, from the one used longest ago to the latest, by `older` and `newer`; its joint is the
entry after the last. The entry after that begins the chain of those without a key. They are given out in the order in
which the prompts before had them, so a prompt's next key is mostly the next entry's: that is looked at first.
"""

from typing import Final, NamedTuple

import numpy as np

from routing.compiled import compiled
from routing.index_loops import Keys, Numbers

_SLOTS: Final = 4
"""For each block: so few are taken that a search for a key mostly looks at one or two."""


class Blocks(NamedTuple):
    """All blocks of a device, by entry."""

    slots: Numbers
    keys: Keys
    references: Numbers
    older: Numbers
    newer: Numbers


def blocks_of(count: int) -> Blocks:
    """So many without a key."""
    newer = np.arange(1, count + 3, dtype=np.int32)
    newer[count] = count
    newer[count + 1] = 0
    older = np.full(count + 1, count, np.int32)
    return Blocks(
        np.zeros(_SLOTS * count, np.int32), np.zeros(count, np.uint64), np.full(count, -1, np.int32), older, newer
    )


@compiled
def prefix(blocks: Blocks, prompt: Keys) -> int:
    """How many of the first keys are here."""
    entry = -1
    for count in range(len(prompt)):
        entry = _entry(blocks, prompt[count], entry)
        if entry < 0:
            return count
    return len(prompt)


@compiled
def idle_among(blocks: Blocks, prompt: Keys) -> int:
    """How many of these, which are all here, nobody needs."""
    count, entry = 0, -1
    for key in prompt:
        entry = _entry(blocks, key, entry)
        count += blocks.references[entry] == 0
    return count


@compiled
def hold(blocks: Blocks, prompt: Keys) -> int:
    """Somebody needs these, which are all here; how many nobody needed before."""
    woken, entry = 0, -1
    for key in prompt:
        entry = _entry(blocks, key, entry)
        woken += _wake(blocks, entry)
    return woken


@compiled
def publish(blocks: Blocks, prompt: Keys) -> tuple[Keys, int]:
    """Somebody needs these. Which were not here, and how many were but nobody needed."""
    stored, count, woken = np.empty(len(prompt), np.uint64), 0, 0
    free = len(blocks.newer) - 1
    for key in prompt:
        slot = _slot(blocks.slots, blocks.keys, key)
        entry = blocks.slots[slot] - 1
        if entry >= 0:
            woken += _wake(blocks, entry)
            continue
        entry = blocks.newer[free]
        blocks.newer[free] = blocks.newer[entry]
        blocks.slots[slot] = entry + 1
        blocks.keys[entry] = key
        blocks.references[entry] = 1
        stored[count] = key
        count += 1
    return stored[:count], woken


@compiled
def release(blocks: Blocks, prompt: Keys) -> int:
    """One less needs these, the last key first; how many nobody needs now."""
    rested, joint, entry = 0, len(blocks.older) - 1, -1
    for number in range(len(prompt) - 1, -1, -1):
        entry = _entry(blocks, prompt[number], entry)
        blocks.references[entry] -= 1
        if blocks.references[entry] == 0:
            latest = blocks.older[joint]
            blocks.older[entry], blocks.newer[entry] = latest, joint
            blocks.newer[latest] = blocks.older[joint] = entry
            rested += 1
    return rested


@compiled
def evict(blocks: Blocks, count: int) -> Keys:
    """The keys of the `count` blocks that were needed longest ago, which they lose."""
    evicted = np.empty(count, np.uint64)
    joint, free = len(blocks.older) - 1, len(blocks.newer) - 1
    for number in range(count):
        entry = blocks.newer[joint]
        evicted[number] = blocks.keys[entry]
        _unlink(blocks, entry)
        _clear(blocks, _slot(blocks.slots, blocks.keys, blocks.keys[entry]))
        blocks.references[entry] = -1
        blocks.newer[entry] = blocks.newer[free]
        blocks.newer[free] = entry
    return evicted


@compiled
def among(blocks: Blocks, keys: Keys, here: bool) -> Keys:
    """Those of the keys that are here, or those that are not."""
    found, count, entry = np.empty(len(keys), np.uint64), 0, -1
    for key in keys:
        entry = _entry(blocks, key, entry)
        if (entry >= 0) == here:
            found[count] = key
            count += 1
    return found[:count]


@compiled
def _entry(blocks: Blocks, key: np.uint64, near: int) -> int:
    """The key's entry, or -1. It is mostly behind the entry `near`, or before it when a prompt is taken backwards."""
    keys, references = blocks.keys, blocks.references
    if near + 1 < len(keys) and keys[near + 1] == key and references[near + 1] >= 0:
        return near + 1
    if near > 0 and keys[near - 1] == key and references[near - 1] >= 0:
        return near - 1
    return int(blocks.slots[_slot(blocks.slots, keys, key)]) - 1


@compiled
def _wake(blocks: Blocks, entry: int) -> int:
    """One more needs a block; 1 if nobody did."""
    blocks.references[entry] += 1
    if blocks.references[entry] > 1:
        return 0
    _unlink(blocks, entry)
    return 1


@compiled
def _unlink(blocks: Blocks, entry: int) -> None:
    """Take an entry out of the ring."""
    older, newer = blocks.older[entry], blocks.newer[entry]
    blocks.newer[older], blocks.older[newer] = newer, older


@compiled
def _home(slots: Numbers, key: np.uint64) -> np.int64:
    """Where the search for a key begins."""
    mixed = (key ^ (key >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(len(slots))) >> np.uint64(32))


@compiled
def _behind(slots: Numbers, slot: np.int64) -> np.int64:
    """The slot that a search looks at next."""
    return np.int64(0) if slot + 1 == len(slots) else slot + 1


@compiled
def _slot(slots: Numbers, keys: Keys, key: np.uint64) -> np.int64:
    """The slot with the key's entry, or the empty one where it would be."""
    slot = _home(slots, key)
    while slots[slot] and keys[slots[slot] - 1] != key:
        slot = _behind(slots, slot)
    return slot


@compiled
def _clear(blocks: Blocks, slot: np.int64) -> None:
    """Empty a slot of the hash table; entries behind it that would not be found any more move up."""
    slots = blocks.slots
    hole = at = slot
    while True:
        at = _behind(slots, at)
        if not slots[at]:
            break
        begins = _home(slots, blocks.keys[slots[at] - 1])
        if begins <= hole < at or at < begins <= hole or hole < at < begins:  # the hole lies on its way
            slots[hole] = slots[at]
            hole = at
    slots[hole] = 0
