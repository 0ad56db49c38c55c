"""Tables: numpy arrays of records, one for each replica, that compiled functions read and write by field. Pure.

What a record holds is told by the annotations of a class, so that a table of `Member` gives a `Member` at each place:
in compiled functions that costs nothing. Integers and floats have 64 bits.
"""

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Protocol, SupportsIndex, TypeAlias, TypeVar, cast, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

Record = TypeVar("Record")
Column: TypeAlias = NDArray[np.float64 | np.int64]


class Table(Protocol[Record]):
    """Records by place, or one field of all of them."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Record: ...

    @overload
    def __getitem__(self, field: str, /) -> Column: ...

    def __setitem__(self, place: SupportsIndex, record: Record, /) -> None: ...


def table(records: Sequence[Record], kind: type[Record]) -> Table[Record]:
    """These records; `kind` is a NamedTuple."""
    return cast(Table[Record], np.array(records, layout(kind)))


def read(records: Table[Record], place: int, kind: type[Record]) -> Record:
    """One record as a value, of Python's numbers."""
    return kind(*cast(NDArray[np.void], records)[place].item())


def layout(kind: type[object]) -> "np.dtype[np.void]":
    """How numpy keeps a record: as one that has attributes."""
    return _layout(cast(Hashable, kind))


@cache
def _layout(kind: type[object]) -> "np.dtype[np.void]":
    """Annotations are slow to read."""
    return np.dtype((np.record, [(name, np.dtype(field)) for name, field in get_type_hints(kind).items()]))
