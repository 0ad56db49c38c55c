"""The accounts of all replicas as columns of numbers, so that a router reads hundreds of them at once.

Row 0 stands for every replica that has none and never was given anything. A row belongs to one replica until it is
freed.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


def number(value: float) -> Floats:
    """A number to combine columns with: an array of no dimensions, which numpy takes without converting it."""
    return np.array(value, dtype=np.float64)


class Column:
    """Which column is what of a replica: what open leases reserve, and from `TURN` on what it was ever given.

    `FRONT_S` is the work of the prompt in front of the queue and `FRONT_SINCE` when it got there, infinite when that is
    not known. `TURN` is when it was last given something, larger is later.
    """

    REQUESTS = 0
    CONTEXT_TOKENS = 1
    BLOCKS = 2
    PREFILL_TOKENS = 3
    PREFILL_S = 4
    FRONT_S = 5
    FRONT_SINCE = 6
    TURN = 7
    GIVEN_REQUESTS = 8
    GIVEN_PREFILL_S = 9
    COUNT = 10


_FIRST_SIZE = 64
_NEVER = -1.0


class Books:
    """Owns the columns. `version` changes when a replica gets or loses its row."""

    def __init__(self) -> None:
        self.version = 0
        self.columns = _empty(_FIRST_SIZE)
        self._rows: dict[str, int] = {}
        self._free = list(range(_FIRST_SIZE - 1, 0, -1))

    def row(self, replica_id: str) -> int:
        """The replica's row, a new one if it has none."""
        row = self._rows.get(replica_id)
        if row is None:
            if not self._free:
                self._grow()
            row = self._rows[replica_id] = self._free.pop()
            self.version += 1
        return row

    def rows(self, replica_ids: Sequence[str]) -> Rows:
        """Where to look for these replicas."""
        return np.array([self._rows.get(replica_id, 0) for replica_id in replica_ids], dtype=np.intp)

    def free(self, replica_id: str) -> None:
        """Forget the replica."""
        row = self._rows.pop(replica_id, None)
        if row is not None:
            self.columns[:, row] = self.columns[:, 0]
            self._free.append(row)
            self.version += 1

    def _grow(self) -> None:
        size = self.columns.shape[1]
        larger = _empty(2 * size)
        larger[:, :size] = self.columns
        self.columns = larger
        self._free = list(range(2 * size - 1, size - 1, -1))


def _empty(size: int) -> Floats:
    columns = np.zeros((Column.COUNT, size))
    columns[Column.TURN] = _NEVER
    columns[Column.FRONT_SINCE] = np.inf
    return columns
