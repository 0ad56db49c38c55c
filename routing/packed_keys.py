"""Keys as arrays of 64-bit integers: as good as lists, and compared at the speed of memory. Pure."""

from array import array
from collections.abc import Iterable
from itertools import compress, count
from operator import ne
from typing import TypeAlias

PackedKeys: TypeAlias = "array[int]"
"""Of type code Q."""


def pack(keys: Iterable[int]) -> PackedKeys:
    """The same object if it is packed already. Raises OverflowError for what is not 64 bits."""
    return keys if isinstance(keys, array) and keys.typecode == "Q" else array("Q", keys)


def common(keys: PackedKeys, start: int, others: PackedKeys, at: int) -> int:
    """How many keys from `start` on are equal to those of `others` from `at` on."""
    length = min(len(keys) - start, len(others) - at)
    mine, theirs = keys[start : start + length], others[at : at + length]
    return length if mine == theirs else next(compress(count(), map(ne, mine, theirs)))
