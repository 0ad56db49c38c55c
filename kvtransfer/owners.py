"""Who holds something of a store: connections, pulls, the store itself. Pure: time is an argument."""

from dataclasses import dataclass

from kvtransfer.holdings import Holdings
from kvtransfer.slot_records import Owner


@dataclass(frozen=True, slots=True, order=True)
class Tenure:
    """Something that is held since a moment of the store's clock; `owner` is a name for people."""

    since_s: float
    owner: str


class Owners:
    """Every owner's pins and name, from `open` to `close`. An owner's number is never used again."""

    def __init__(self) -> None:
        self._holdings: dict[Owner, Holdings] = {}
        self._opened = 0

    def open(self, name: str) -> Owner:
        """A new one."""
        self._opened += 1
        self._holdings[self._opened] = Holdings(name)
        return self._opened

    def close(self, owner: Owner) -> list[int]:
        """It is gone; the slots it had pinned."""
        return self._holdings.pop(owner).slots()

    def name(self, owner: Owner) -> str:
        """For people."""
        return self._holdings[owner].name

    @property
    def oldest_pin(self) -> Tenure | None:
        """Of all pins the one that was taken first."""
        held = self._holdings.values()
        return min((Tenure(one.oldest_s, one.name) for one in held if one.oldest_s is not None), default=None)

    @property
    def pins(self) -> int:
        """How many there are. Costs time in proportion."""
        return sum(len(one.slots()) for one in self._holdings.values())

    def check(self) -> None:
        """Assert the invariants: for tests."""
        for holdings in self._holdings.values():
            holdings.check()

    def __getitem__(self, owner: Owner) -> Holdings:
        return self._holdings[owner]

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._holdings

    def __len__(self) -> int:
        return len(self._holdings)
