"""What of a prompt the replicas of a pool can use, as the index tells."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from routing.costs import Found
from routing.index import Prefixes
from routing.pool import Kin, Pool
from routing.records import Column, Table, layout

_FOUND = layout(Found)


class Holder(NamedTuple):
    """A store and how many of a prompt's first blocks it has."""

    blocks: int
    store: str


class Top(NamedTuple):
    """The two stores that hold most, the second for those who share the first."""

    first: Holder
    second: Holder

    def take(self, other: Holder) -> "Top":
        """With another that holds more than the second."""
        return Top(other, self.first) if other.blocks > self.first.blocks else Top(self.first, other)


_NOWHERE = Holder(0, "")


def look_up(pool: Pool, prefixes: Callable[[int], Prefixes], excluded: Set[str]) -> Table[Found]:
    """`prefixes` tells by block size. Mappings that are the device's own say nothing new."""
    found: Table[Found] = np.zeros(len(pool), _FOUND)
    for size in pool.block_sizes:
        known = prefixes(size)
        _spread(known.device, found["device"], pool, size)
        if known.promised is not known.device:
            _spread(known.promised, found["promised"], pool, size)
            _spread(known.coming, found["coming"], pool, size)
        if known.host is not known.device:
            _spread(known.host, found["host"], pool, size)
        for kind, kin in pool.kinds.items():
            if kind.block_size == size and known.stores:
                _spread_stores(known.stores, found, pool, kin, size)
    for replica_id in excluded & pool.places.keys():
        found["excluded"][pool.places[replica_id]] = True
    return found


def _spread(blocks: Mapping[str, int], tokens: Column, pool: Pool, size: int) -> None:
    """Write down what was found of replicas with blocks of `size`."""
    places, sizes = pool.places, pool.sizes
    for replica_id, count in blocks.items():
        place = places.get(replica_id)
        if place is not None and sizes[place] == size:
            tokens[place] = count * size


def _spread_stores(blocks: Mapping[str, int], found: Table[Found], pool: Pool, kin: Kin, size: int) -> None:
    """Write down what is in the store of each replica's node, and the most that is in another's that it could read."""
    top = Top(_NOWHERE, _NOWHERE)
    node = found["node"]
    for store, count in blocks.items():
        places = kin.by_store.get(store)
        if places is None:
            continue
        for place in places:
            node[place] = count * size
        if count > top.second.blocks:
            top = top.take(Holder(count, store))
    if top.first.blocks:
        _write_remote(found, kin.places, top.first, kin, size)
        _write_remote(found, kin.by_store[top.first.store], top.second, kin, size)
        if len(kin.by_zone) > 1:
            _prefer_near(blocks, found, top.first.blocks * size, pool, kin, size)
            write_far(found, pool, kin)


def _write_remote(found: Table[Found], places: Column | Sequence[int], holder: Holder, kin: Kin, size: int) -> None:
    remote, node = found["remote"], found["remote_node"]
    remote[places] = holder.blocks * size
    node[places] = kin.nodes.get(holder.store, 0)


def _prefer_near(blocks: Mapping[str, int], found: Table[Found], most: int, pool: Pool, kin: Kin, size: int) -> None:
    """Of stores that hold as much as any, a replica asks the one in its zone."""
    for store in kin.by_store:
        if blocks.get(store, 0) * size == most:
            node = kin.nodes[store]
            places = kin.by_zone[int(pool.zones[node])]
            found["remote_node"][places[found["node"][places] < most]] = node


def write_far(found: Table[Found], pool: Pool, kin: Kin) -> None:
    """Write down who is in another zone than the store that it could read."""
    zones = pool.members["zone"][kin.places]
    found["far"][kin.places] = pool.zones[found["remote_node"][kin.places]] != zones
