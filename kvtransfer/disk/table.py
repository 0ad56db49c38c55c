"""Which blocks are on disk or on their way there, and which goes when there is no more room. Pure.

Bounded by a number of places, one for each file; a place is taken before its file is written. Tenants share them as
they share the arena. Invariant (`check`): a block has one place, and every place that is taken is on offer.
"""

from collections import Counter
from dataclasses import dataclass

from kvtransfer.eviction.shares import TenantShares
from kvtransfer.tenant import Tenant
from kvtransfer.transport import BlockKey


@dataclass(slots=True, eq=False)
class DiskEntry:
    """A block's place. `whole`: its file was written to its end, so that it can be read."""

    key: BlockKey
    tenant: Tenant
    place: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """`entry` is None when there is no room; the files of `gone` go before the block's own is written."""

    entry: DiskEntry | None
    gone: list[DiskEntry]


class DiskTable:
    """Owns the places."""

    def __init__(self, places: int, shares: TenantShares) -> None:
        self._shares = shares
        self._free = list(range(places - 1, -1, -1))
        self._entries: dict[BlockKey, DiskEntry] = {}
        self._by_place: dict[int, DiskEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: BlockKey) -> DiskEntry | None:
        """The block's entry, whole or not."""
        return self._entries.get(key)

    def admit(self, key: BlockKey, tenant: Tenant) -> Admission:
        """A place for a block that has none."""
        assert key not in self._entries
        gone = [] if self._free else [self._by_place[place] for place in self._shares.choose(1, tenant)]
        for entry in gone:
            self._vacate(entry)
        if not self._free:
            return Admission(None, gone)
        entry = DiskEntry(key, tenant, self._free.pop())
        self._entries[key] = self._by_place[entry.place] = entry
        self._shares.hold(tenant)
        self._shares.offer(tenant, [entry.place], [key])
        return Admission(entry, gone)

    def finish(self, entry: DiskEntry) -> bool:
        """The block's file is whole now. False when it has lost its place meanwhile."""
        entry.whole = self._entries.get(entry.key) is entry
        return entry.whole

    def use(self, entry: DiskEntry) -> None:
        """The block was asked for, or given up by the arena once more."""
        self._shares.withdraw(entry.tenant, [entry.place])
        self._shares.offer(entry.tenant, [entry.place], [entry.key])

    def drop(self, entry: DiskEntry) -> bool:
        """The block goes. False when it has gone already."""
        if self._entries.get(entry.key) is not entry:
            return False
        self._shares.withdraw(entry.tenant, [entry.place])
        self._vacate(entry)
        return True

    def whole(self) -> set[BlockKey]:
        """Every block that can be read."""
        return {key for key, entry in self._entries.items() if entry.whole}

    def check(self) -> None:
        """Assert the invariant: for tests."""
        assert {entry.place: entry for entry in self._entries.values()} == self._by_place
        assert not set(self._free) & self._by_place.keys()
        assert len(self._shares) == len(self._entries)
        self._shares.check(Counter(entry.tenant for entry in self._entries.values()))

    def _vacate(self, entry: DiskEntry) -> None:
        del self._entries[entry.key], self._by_place[entry.place]
        self._shares.give_back(entry.tenant)
        self._free.append(entry.place)
