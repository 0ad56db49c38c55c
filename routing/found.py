"""What of a prompt the replicas of a pool can use, as the index tells."""

from collections.abc import Callable, Mapping, Set

import numpy as np

from routing.costs import Found
from routing.index import Prefixes
from routing.pool import Pool
from routing.records import Column, Table, layout

_FOUND = layout(Found)


def look_up(pool: Pool, prefixes: Callable[[int], Prefixes], excluded: Set[str]) -> Table[Found]:
    """`prefixes` tells by block size. Mappings that are the device's own say nothing new."""
    found: Table[Found] = np.zeros(len(pool), _FOUND)
    for size in pool.block_sizes:
        known = prefixes(size)
        _spread(known.device, found["device"], pool, size)
        if known.promised is not known.device:
            _spread(known.promised, found["promised"], pool, size)
        if known.host is not known.device:
            _spread(known.host, found["host"], pool, size)
        for node_id, blocks in known.nodes.items():
            for place in pool.seats.get(node_id, ()):
                if pool.sizes[place] == size:
                    found["node"][place] = blocks * size
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
