"""An index as simple as can be: sets and lists, searched anew for every question."""

from collections.abc import Iterable, Sequence

from routing.index import IndexStatistics, Prefixes, Tier


class PlainIndex:
    """A `KvIndex`. Every replica is taken to be EXACT."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.stored: dict[tuple[str, Tier], set[int]] = {}
        self.promises: dict[int, tuple[str, Sequence[int], float]] = {}
        self._next = 0

    def place(self, replica_id: str, node_id: str) -> None:
        self.nodes[replica_id] = node_id

    def snapshot(self, replica_id: str, tier: Tier, keys: Iterable[int]) -> None:
        self.stored[replica_id, tier] = set(keys)

    def apply(self, replica_id: str, tier: Tier, stored: Iterable[int], removed: Iterable[int]) -> None:
        self.stored.setdefault((replica_id, tier), set()).update(stored)
        self.stored[replica_id, tier].difference_update(removed)

    def degrade(self, replica_id: str) -> None:
        for tier in Tier:
            self.stored.pop((replica_id, tier), None)

    def drop(self, replica_id: str) -> None:
        self.degrade(replica_id)
        self.promises = {n: p for n, p in self.promises.items() if p[0] != replica_id}

    def promise(self, replica_id: str, keys: Sequence[int], until: float) -> int:
        self._next += 1
        self.promises[self._next] = (replica_id, keys, until)
        return self._next

    def retract(self, promise: int) -> None:
        self.promises.pop(promise, None)

    def longest_prefix(self, keys: Sequence[int], now: float) -> Prefixes:
        on_node: dict[str, set[int]] = {}
        for replica_id, node_id in self.nodes.items():
            on_node.setdefault(node_id, set()).update(self.stored.get((replica_id, Tier.HOST), ()))
        device = {r: self.stored.get((r, Tier.DEVICE), set()) for r in self.nodes}
        promised = {r: set(held) for r, held in device.items()}
        for replica_id, expected, until in self.promises.values():
            if until >= now and replica_id in promised:
                promised[replica_id].update(expected)
        return Prefixes(
            device=_lengths(keys, device),
            host=_lengths(keys, {r: device[r] | on_node[self.nodes[r]] for r in self.nodes}),
            promised=_lengths(keys, promised),
            nodes=_lengths(keys, on_node),
        )

    def statistics(self) -> IndexStatistics:
        keys = set().union(*self.stored.values())
        return IndexStatistics(
            keys=len(keys),
            places=sum(map(len, self.stored.values())),
            bytes=0,
            exact=len(self.nodes),
            degraded=0,
            promised=len(self.promises),
            refused=0,
        )


def _lengths(keys: Sequence[int], places: dict[str, set[int]]) -> dict[str, int]:
    lengths = {place: _length(keys, held) for place, held in places.items()}
    return {place: length for place, length in lengths.items() if length}


def _length(keys: Sequence[int], held: set[int]) -> int:
    return next((i for i, key in enumerate(keys) if key not in held), len(keys))
