"""The accounts of all replicas as one table, so that a router reads hundreds of them at once.

Row 0 stands for every replica that has none and never was given anything. A row belongs to one replica until it is
freed.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from routing.records import Column, read, table


class Booked(NamedTuple):
    """What open leases reserve on a replica, and from `turn` on what it was ever given. Of the `requests` some are
    `decoding` there, or will be; the others only have their prompts computed.

    `front_s` is the work of the prompt in front of the queue and `front_since` when it got there, infinite when that is
    not known. `turn` is when it was last given something, larger is later.
    """

    requests: int = 0
    decoding: int = 0
    context_tokens: int = 0
    blocks: int = 0
    prefill_tokens: int = 0
    prefill_s: float = 0.0
    front_s: float = 0.0
    front_since: float = inf
    turn: int = -1
    given_requests: int = 0
    given_prefill_s: float = 0.0


_NOTHING = Booked()
_FIRST_SIZE = 64


class Books:
    """Owns the table. `version` changes when a replica gets or loses its row."""

    def __init__(self) -> None:
        self.version = 0
        self.table = table([_NOTHING] * _FIRST_SIZE, Booked)
        self._rows: dict[str, int] = {}
        self._free = list(range(_FIRST_SIZE - 1, 0, -1))

    def write(self, replica_id: str, booked: Booked) -> None:
        """What holds of the replica from now on."""
        row = self._rows.get(replica_id)
        if row is None:
            row = self._new_row(replica_id)
        self.table[row] = booked

    def read(self, replica_id: str) -> Booked:
        """What holds of the replica."""
        return read(self.table, self._rows.get(replica_id, 0), Booked)

    def rows(self, replica_ids: Sequence[str]) -> Column:
        """Where to look for these replicas."""
        return np.array([self._rows.get(replica_id, 0) for replica_id in replica_ids], dtype=np.int64)

    def free(self, replica_id: str) -> None:
        """Forget the replica."""
        row = self._rows.pop(replica_id, None)
        if row is not None:
            self.table[row] = _NOTHING
            self._free.append(row)
            self.version += 1

    def _new_row(self, replica_id: str) -> int:
        if not self._free:
            self._grow()
        row = self._rows[replica_id] = self._free.pop()
        self.version += 1
        return row

    def _grow(self) -> None:
        size = len(self.table)
        larger = table([_NOTHING] * (2 * size), Booked)
        for row in range(size):
            larger[row] = self.table[row]
        self.table = larger
        self._free = list(range(2 * size - 1, size - 1, -1))
