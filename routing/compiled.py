"""Functions compiled to machine code by numba: for loops over arrays that a decision waits for. Pure.

A compiled function takes numbers, numpy arrays and tuples of them, and is compiled when it is first called with their
types: whoever serves requests calls it once before. That takes about a second, later processes read the result from a
cache beside the source; where that folder is not writable, from the user's cache folder, or from `NUMBA_CACHE_DIR`.
Where none of them is, each process compiles anew.
With `NUMBA_DISABLE_JIT=1` the same functions run as plain Python, for a debugger.

It costs 0.2 s to import: what workers import must not import this.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same function, as machine code from its first call on. Integers are those of the machine and wrap around."""
    fast: Callable[Parameters, Result]
    try:
        fast = numba.njit(cache=True)(function)
    except RuntimeError:  # there is no folder to keep it in
        fast = numba.njit(function)
    return fast
