"""The host tier of one simulated node: keys of blocks its devices let go, least recently used first out."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from cluster.planning.device_cache import CacheChanges


class HostCache:
    """At most `blocks` keys, the newest."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._keys: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def prefix(self, keys: Sequence[int]) -> int:
        """How many of the first blocks are here; these have been used now."""
        count = next((i for i, key in enumerate(keys) if key not in self._keys), len(keys))
        for key in keys[:count]:
            self._keys.move_to_end(key)
        return count

    def store(self, keys: Iterable[int]) -> CacheChanges:
        """These came from a device; what there is no room for goes. Returns what changed."""
        stored: list[int] = []
        for key in keys:
            if key in self._keys:
                self._keys.move_to_end(key)
            else:
                self._keys[key] = None
                stored.append(key)
        excess = max(0, len(self._keys) - self._blocks)
        removed = [self._keys.popitem(last=False)[0] for _ in range(excess)]
        gone = set(removed)
        return CacheChanges([k for k in stored if k not in gone], [k for k in removed if k not in set(stored)])
