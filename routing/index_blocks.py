"""The index: one map from block key to a set of places, the promises beside it, and a budget for both.

Bytes are accounted by `routing.index_places` and `routing.index_promises`, as upper bounds. Policy: what does not fit
is not taken in. Such a block earns no credit, is counted in `refused`, and is not asked for again; a snapshot or event
that tells it once more finds room as soon as other blocks have gone. The index then knows less than there is, never
more.

Invariant (`check`): the parts' own; bits are those of known replicas, and of a tier only after its snapshot.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from routing.index import IndexStatistics, Prefixes, Tier
from routing.index_places import Places
from routing.index_promises import Promises
from routing.index_replicas import Replica, Replicas
from routing.packed_keys import PackedKeys, pack
from routing.prefix import Depth, Run, apart, depths

DEFAULT_BUDGET_BYTES: Final = 512 * 2**20
"""Room for 26 million blocks."""

MANY_DEPTHS: Final = 3
"""Fewer have masks that many prompts share, whose names are remembered; of more, each place is named once only."""

_NOWHERE: Final[Mapping[str, int]] = {}


class BlockIndex:
    """See `routing.index.KvIndex` for what the methods promise."""

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._replicas = Replicas()
        self._places = Places()
        self._promises = Promises()
        self._refused = 0
        self.changed: Callable[[], None] = lambda: None

    # Fed by the workers' events

    def place(self, replica_id: str, store: str) -> None:
        """See `KvIndex`."""
        self._replicas.place(self._know(replica_id), store)

    def snapshot(self, replica_id: str, tier: Tier, keys: Iterable[int]) -> None:
        """See `KvIndex`."""
        replica, held = self._know(replica_id), pack(keys)
        self._refused += self._places.renew(replica.bit(tier), held, self._places_limit_bytes())
        self._replicas.tell(replica, tier)
        self.changed()

    def apply(self, replica_id: str, tier: Tier, stored: Iterable[int], removed: Iterable[int]) -> None:
        """See `KvIndex`. What goes makes room for what comes."""
        replica = self._replicas.get(replica_id)
        if replica is None or tier not in replica.told:
            return
        came, went = pack(stored), pack(removed)
        if went:
            self._places.remove(replica.bit(tier), went)
        if came:
            self._refused += self._places.add(replica.bit(tier), came, self._places_limit_bytes())
        if came and went:  # what came may have gone again
            self._places.remove(replica.bit(tier), went)
        self.changed()

    def degrade(self, replica_id: str) -> None:
        """See `KvIndex`."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            self._empty(replica)
            self._replicas.degrade(replica)
            self.changed()

    def drop(self, replica_id: str) -> None:
        """See `KvIndex`."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            self._empty(replica)
            self._promises.clear(replica.device)
            self._replicas.forget(replica)
            self.changed()

    def _know(self, replica_id: str) -> Replica:
        replica = self._replicas.know(replica_id)
        self._places.widen(self._replicas.bits)
        self._promises.widen(self._replicas.bits)
        return replica

    def _empty(self, replica: Replica) -> None:
        self._places.clear(replica.device | replica.host)

    def _places_limit_bytes(self) -> int:
        return self._budget_bytes - self._promises.bytes()

    # Fed by this gateway's own placements

    def promise(self, replica_id: str, keys: Sequence[int], until: float) -> int:
        """See `KvIndex`."""
        replica = self._replicas.get(replica_id)
        fit = self._promises.room(self._budget_bytes - self._promises.bytes() - self._places.bytes())
        if replica is None or not fit or not keys:
            self._refused += 0 if replica is None else len(keys)
            return self._promises.number()
        if fit < len(keys):
            self._refused += len(keys) - fit
            keys = keys[:fit]
        return self._promises.add(replica.device, pack(keys), until)

    def retract(self, promise: int) -> None:
        """See `KvIndex`."""
        self._promises.end(promise)
        self.changed()

    # Asked by the router

    def longest_prefix(self, keys: Sequence[int], now: float) -> Prefixes:
        """See `KvIndex`. O(blocks up to the first that lies nowhere + replicas in the answer)."""
        self._promises.expire(now)
        prompt = pack(keys)
        known = self._places.runs(prompt)
        exact, hosts = self._replicas.exact, self._replicas.hosts
        device = self._by_replica(depths(known, exact))
        host, stores = device, _NOWHERE
        for mask, _ in known:
            if mask & hosts:
                reached = depths(known, exact | hosts, self._replicas.usable)
                host, stores = self._by_replica(reached), self._by_store(reached)
                break
        promised = self._promised(prompt, known) if self._promises else _NOWHERE
        return Prefixes(
            device,
            host,
            {**device, **promised} if promised else device,
            {
                replica_id: blocks
                for replica_id, blocks in promised.items()
                if blocks > device.get(replica_id, 0) and self._replicas.tells_of(replica_id, Tier.HOST)
            },
            stores,
        )

    def _promised(self, prompt: PackedKeys, known: Sequence[Run]) -> Mapping[str, int]:
        """Where a promise ends, blocks that are on the device already go on."""
        reached: list[Depth] = []
        end = known[-1].end if known else 0
        for mask, blocks in self._promises.depths(prompt):
            onward = known if blocks < end else self._places.runs(prompt, blocks)
            reached += depths(onward, mask & self._replicas.exact, start=blocks)
        return self._by_replica(reached)

    def _by_replica(self, reached: Sequence[Depth]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for mask, blocks in reached if len(reached) < MANY_DEPTHS else apart(reached):
            found |= dict.fromkeys(self._replicas.names(mask).replicas, blocks)
        return found

    def _by_store(self, reached: Sequence[Depth]) -> Mapping[str, int]:
        return {store: depth.blocks for depth in reached for store in self._replicas.names(depth.mask).stores}

    # Truth

    def statistics(self) -> IndexStatistics:
        """See `KvIndex`."""
        exact = self._replicas.exact.bit_count()
        return IndexStatistics(
            keys=len(self._places),
            places=self._places.held,
            bytes=self._places.bytes() + self._promises.bytes(),
            exact=exact,
            degraded=len(self._replicas) - exact,
            promised=len(self._promises),
            refused=self._refused,
        )

    def check(self) -> None:
        """Assert the invariant. O(keys × places)."""
        self._replicas.check()
        self._places.check()
        self._promises.check()
        told = sum(replica.bit(tier) for replica in self._replicas for tier in replica.told)
        assert self._places.mask() | told == told, "a block of a place that told nothing"
        devices = sum(replica.device for replica in self._replicas)
        assert self._promises.places() | devices == devices, "a promise to an unknown replica"
