"""The index as one would write it without a thought for speed: sets, asked anew for every question."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from routing.index import Prefixes, Tier


@dataclass
class ModelReplica:
    """What one replica told; a tier is absent until its snapshot."""

    node_id: str | None = None
    tiers: dict[Tier, set[int]] = field(default_factory=dict)

    def holds(self, tier: Tier, key: int) -> bool:
        return key in self.tiers.get(tier, ())


@dataclass
class ModelPromise:
    """A prompt in flight."""

    replica_id: str
    keys: Sequence[int]
    until: float


class IndexModel:
    """A `KvIndex` without a budget."""

    def __init__(self) -> None:
        self.replicas: dict[str, ModelReplica] = {}
        self.promises: dict[int, ModelPromise] = {}

    def place(self, replica_id: str, node_id: str) -> None:
        self.replicas.setdefault(replica_id, ModelReplica()).node_id = node_id

    def snapshot(self, replica_id: str, tier: Tier, keys: Iterable[int]) -> None:
        self.replicas.setdefault(replica_id, ModelReplica()).tiers[tier] = set(keys)

    def apply(self, replica_id: str, tier: Tier, stored: Iterable[int], removed: Iterable[int]) -> None:
        held = self.replicas.get(replica_id, ModelReplica()).tiers.get(tier)
        if held is not None:
            held |= set(stored)
            held -= set(removed)

    def degrade(self, replica_id: str) -> None:
        self.replicas.get(replica_id, ModelReplica()).tiers.clear()

    def drop(self, replica_id: str) -> None:
        self.replicas.pop(replica_id, None)
        self.promises = {n: p for n, p in self.promises.items() if p.replica_id != replica_id}

    def promise(self, number: int, promise: ModelPromise) -> None:
        if promise.replica_id in self.replicas:
            self.promises[number] = promise

    def longest_prefix(self, keys: Sequence[int], now: float) -> Prefixes:
        self.promises = {n: p for n, p in self.promises.items() if p.until > now}
        exact = {r for r, replica in self.replicas.items() if Tier.DEVICE in replica.tiers}
        nodes = {replica.node_id for replica in self.replicas.values() if replica.node_id is not None}

        def on_device(replica_id: str, key: int) -> bool:
            return self.replicas[replica_id].holds(Tier.DEVICE, key)

        def on_node(node_id: str, key: int) -> bool:
            return any(r.node_id == node_id and r.holds(Tier.HOST, key) for r in self.replicas.values())

        def loadable(replica_id: str, key: int) -> bool:
            replica = self.replicas[replica_id]
            host = replica.holds(Tier.HOST, key) if replica.node_id is None else on_node(replica.node_id, key)
            return host or on_device(replica_id, key)

        def coming(replica_id: str, key: int) -> bool:
            promised = any(p.replica_id == replica_id and key in p.keys for p in self.promises.values())
            return promised or on_device(replica_id, key)

        device, promised = _depths(exact, keys, on_device), _depths(exact, keys, coming)
        return Prefixes(
            device=device,
            host=_depths(exact, keys, loadable),
            promised=promised,
            coming={
                name: depth
                for name, depth in promised.items()
                if depth > device.get(name, 0) and Tier.HOST in self.replicas[name].tiers
            },
            stores=_depths(nodes, keys, on_node),
        )


def _depths(names: Iterable[str], keys: Sequence[int], holds: Callable[[str, int], bool]) -> dict[str, int]:
    depths = {name: next((i for i, key in enumerate(keys) if not holds(name, key)), len(keys)) for name in names}
    return {name: depth for name, depth in depths.items() if depth}
