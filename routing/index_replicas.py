"""The index's replicas: which bits stand for them, which stores they share, what is known of them.

A replica has a slot: bit `2·slot` of a mask is its device, bit `2·slot + 1` what it told of its store. Slots of those
that went are given to the next, lowest first.

Invariant (`check`): no two replicas share a slot; `exact` is the device bits of the EXACT replicas; a store's masks
are those of its replicas, and no store is without one.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from routing.index import Tier

MAX_REMEMBERED: Final = 4_096
"""Masks whose meaning is remembered; beyond it they are read anew."""


@dataclass(slots=True)
class Store:
    """The bits of its replicas: their devices, and their host tiers. A replica of no known store has one to itself."""

    name: str | None
    devices: int = 0
    hosts: int = 0


@dataclass(slots=True)
class Replica:
    """One replica. `told` are the tiers whose snapshot is in."""

    replica_id: str
    slot: int
    store: Store
    told: set[Tier] = field(default_factory=set)

    @property
    def device(self) -> int:
        """The bit of its device."""
        return 1 << 2 * self.slot

    @property
    def host(self) -> int:
        """The bit of what it told of its store."""
        return 2 << 2 * self.slot

    def bit(self, tier: Tier) -> int:
        """Either of both."""
        return self.device if tier is Tier.DEVICE else self.host


@dataclass(frozen=True, slots=True)
class Names:
    """A mask in words: the replicas of its device bits, the stores of its host bits."""

    replicas: tuple[str, ...]
    stores: tuple[str, ...]


class Replicas:
    """All known replicas, and what masks mean."""

    def __init__(self) -> None:
        self.exact = 0
        self.hosts = 0
        self._known: dict[str, Replica] = {}
        self._ids: dict[int, str] = {}
        self._by_slot: list[Replica | None] = []
        self._free: list[int] = []
        self._stores: dict[str, Store] = {}
        self._names: dict[int, Names] = {}
        self._usable: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._known.values())

    @property
    def bits(self) -> int:
        """The width of masks."""
        return 2 * len(self._by_slot)

    def get(self, replica_id: str) -> Replica | None:
        """None for an unknown one."""
        return self._known.get(replica_id)

    def tells_of(self, replica_id: str, tier: Tier) -> bool:
        """Whether it is known and the tier's snapshot is in."""
        replica = self._known.get(replica_id)
        return replica is not None and tier in replica.told

    # Change

    def know(self, replica_id: str) -> Replica:
        """The replica, with a slot of its own from now on; DEGRADED and on no known store if it is new."""
        replica = self._known.get(replica_id)
        if replica is None:
            slot = heapq.heappop(self._free) if self._free else len(self._by_slot)
            replica = self._known[replica_id] = Replica(replica_id, slot, Store(None))
            self._by_slot[slot : slot + 1] = [replica]
            self._ids[replica.device] = replica_id
            self._enter(replica, replica.store)
        return replica

    def place(self, replica: Replica, name: str) -> None:
        """The replica shares that store."""
        if replica.store.name != name:
            self._leave(replica)
            self._enter(replica, self._stores.setdefault(name, Store(name)))

    def forget(self, replica: Replica) -> None:
        """It is gone, its slot is free."""
        self.degrade(replica)
        self._leave(replica)
        self._by_slot[replica.slot] = None
        heapq.heappush(self._free, replica.slot)
        del self._known[replica.replica_id], self._ids[replica.device]

    def tell(self, replica: Replica, tier: Tier) -> None:
        """The tier's snapshot is in."""
        replica.told.add(tier)
        if tier is Tier.DEVICE:
            self.exact |= replica.device

    def degrade(self, replica: Replica) -> None:
        """Nothing is known of it any more."""
        replica.told.clear()
        self.exact &= ~replica.device

    def _enter(self, replica: Replica, store: Store) -> None:
        replica.store = store
        store.devices |= replica.device
        store.hosts |= replica.host
        self.hosts |= replica.host
        self._misremember()

    def _leave(self, replica: Replica) -> None:
        store = replica.store
        store.devices ^= replica.device
        store.hosts ^= replica.host
        self.hosts ^= replica.host
        if not store.devices and store.name is not None:
            del self._stores[store.name]
        self._misremember()

    def _misremember(self) -> None:
        self._names.clear()
        self._usable.clear()

    # What masks mean

    def usable(self, mask: int) -> int:
        """Who can use a block: devices that hold it or whose store does, and all host bits of such stores."""
        found = self._usable.get(mask)
        if found is None:
            if len(self._usable) >= MAX_REMEMBERED:
                self._usable.clear()
            found = self._usable[mask] = self._spread(mask)
        return found

    def _spread(self, mask: int) -> int:
        devices, hosts = mask & ~self.hosts, 0
        told = mask & self.hosts
        while told:
            store = self._holder((told & -told).bit_length()).store
            devices |= store.devices
            hosts |= store.hosts
            told &= ~store.hosts
        return devices | hosts

    def names(self, mask: int) -> Names:
        """The mask in words."""
        found = self._names.get(mask)
        if found is None:
            if len(self._names) >= MAX_REMEMBERED:
                self._names.clear()
            found = self._names[mask] = self._read(mask)
        return found

    def _read(self, mask: int) -> Names:
        devices, hosts = mask & ~self.hosts, mask & self.hosts
        replicas: list[str] = []
        while devices:
            low = devices & -devices
            replicas.append(self._ids[low])
            devices ^= low
        stores: list[str] = []
        while hosts:
            store = self._holder((hosts & -hosts).bit_length()).store
            if store.name is not None:
                stores.append(store.name)
            hosts &= ~store.hosts
        return Names(tuple(replicas), tuple(stores))

    def _holder(self, position: int) -> Replica:
        """Whose bit it is; positions count from 1."""
        replica = self._by_slot[(position - 1) // 2]
        assert replica is not None, "the bit of a replica that is gone"
        return replica

    # Truth

    def check(self) -> None:
        """Assert the invariant."""
        slots = [replica.slot for replica in self]
        assert len(set(slots)) == len(slots), "a slot is shared"
        assert sorted(slots + self._free) == list(range(len(self._by_slot)))
        assert all(self._by_slot[replica.slot] is replica for replica in self)
        assert self._ids == {replica.device: replica.replica_id for replica in self}
        assert self.exact == sum(replica.device for replica in self if Tier.DEVICE in replica.told)
        assert self.hosts == sum(replica.host for replica in self)
        for store in [*self._stores.values(), *(replica.store for replica in self)]:
            members = [replica for replica in self if replica.store is store]
            assert members, "a store without replicas is kept"
            assert store.devices == sum(replica.device for replica in members)
            assert store.hosts == sum(replica.host for replica in members)
        assert all(name == store.name for name, store in self._stores.items())
