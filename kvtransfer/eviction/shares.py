"""Whose block goes next: no tenant is pushed below its share by another.

The tenants that hold a slot, and the one that wants some, share `capacity` slots in proportion to their weights. What
others leave unused anybody may take. Who is the most above its share, relative to its weight, gives up a block first;
which one, its own policy says. Pure.

Invariant (`check`): a tenant is known exactly while it holds slots, and no more of them are on offer than it holds.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvtransfer.eviction.choice import PolicyMaker
from kvtransfer.eviction.policy import EvictionPolicy
from kvtransfer.tenant import Tenant
from kvtransfer.transport import BlockKey


@dataclass(slots=True)
class _Part:
    """What one tenant holds."""

    weight: float
    policy: EvictionPolicy
    held: int = 0


class TenantShares:
    """The evictable slots of one table, by tenant."""

    def __init__(self, capacity: int, make_policy: PolicyMaker, weights: Mapping[Tenant, float] | None = None) -> None:
        self._capacity = capacity
        self._make_policy = make_policy
        self._weights = weights or {}
        self._parts: dict[Tenant, _Part] = {}

    def hold(self, tenant: Tenant, slots: int = 1) -> None:
        """The tenant has so many slots more."""
        if tenant not in self._parts:
            self._parts[tenant] = _Part(self._weight(tenant), self._make_policy())
        self._parts[tenant].held += slots

    def give_back(self, tenant: Tenant) -> None:
        """The tenant has a slot less; it is not on offer."""
        part = self._parts[tenant]
        part.held -= 1
        if not part.held:
            del self._parts[tenant]

    def offer(self, tenant: Tenant, slots: Sequence[int], keys: Sequence[BlockKey]) -> None:
        """See `EvictionPolicy`; the slots are some that the tenant holds."""
        self._parts[tenant].policy.offer(slots, keys)

    def withdraw(self, tenant: Tenant, slots: Iterable[int]) -> None:
        """See `EvictionPolicy`."""
        self._parts[tenant].policy.withdraw(slots)

    def choose(self, count: int, wanting: Tenant | None = None) -> list[int]:
        """Up to `count` slots to evict, withdrawn by this call; `wanting` is who will have them.

        Its own blocks may always go, those of others only while they hold more than their share.
        """
        level = self._level(wanting)
        held = {tenant: part.held for tenant, part in self._parts.items()}
        ranks = [(-part.held / part.weight, tenant) for tenant, part in self._parts.items()]
        heapq.heapify(ranks)
        chosen: list[int] = []
        while ranks and len(chosen) < count:
            _, tenant = heapq.heappop(ranks)
            part = self._parts[tenant]
            may_go = tenant == wanting or held[tenant] > int(level * part.weight)
            slot = part.policy.choose() if may_go else None
            if slot is not None:
                chosen.append(slot)
                held[tenant] -= 1
                heapq.heappush(ranks, (-held[tenant] / part.weight, tenant))
        return chosen

    def held(self, tenant: Tenant) -> int:
        """How many slots a tenant holds."""
        return self._parts[tenant].held if tenant in self._parts else 0

    def share(self, tenant: Tenant) -> int:
        """How many slots the tenant is safe to hold, as things are."""
        return int(self._level(tenant) * self._weight(tenant))

    @property
    def tenants(self) -> int:
        """How many tenants hold slots."""
        return len(self._parts)

    def __len__(self) -> int:
        """How many slots are on offer."""
        return sum(len(part.policy) for part in self._parts.values())

    def check(self, held: Mapping[Tenant, int]) -> None:
        """Assert the invariant, given who holds how many slots: for tests."""
        assert {tenant: part.held for tenant, part in self._parts.items()} == dict(held)
        assert all(0 <= len(part.policy) <= part.held for part in self._parts.values())

    def _weight(self, tenant: Tenant) -> float:
        return self._weights.get(tenant, 1.0)

    def _level(self, wanting: Tenant | None) -> float:
        """Slots for each unit of weight."""
        weights = sum(part.weight for part in self._parts.values())
        if wanting is not None and wanting not in self._parts:
            weights += self._weight(wanting)
        return self._capacity / weights if weights else 0.0
