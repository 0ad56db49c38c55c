"""Block keys for prompts of which only a trace's block ids are known.

An id stands for a block *and everything before it*, as our own keys do, so each key follows from its id alone: the
n-th part of block `id` has the key mix(id * parts + n), where mix is the finaliser of splitmix64 (Steele, Lea and
Flood, 2014), a bijection of 64-bit integers. Different blocks never share a key.
"""

from array import array

import numpy as np

_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def keys_of_blocks(ids: "array[int]", parts: int) -> "array[int]":
    """`parts` keys for each id, in order, as unsigned 64-bit integers."""
    firsts = np.asarray(ids, dtype=np.uint64) * np.uint64(parts)
    numbers = np.add.outer(firsts, np.arange(parts, dtype=np.uint64)).ravel()
    keys = array("Q")
    keys.frombytes(_mix(numbers).tobytes())
    return keys


def _mix(numbers: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    mixed = numbers + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
