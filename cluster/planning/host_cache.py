"""The store of one simulated node: keys of blocks that its engines computed, kept as the production policy says.

What is used by one prompt is used from its end on, as in `kvtransfer.slots`: a chain's end is of no use without its
start, and goes first.
"""

from collections.abc import Sequence

from cluster.planning.device_cache import CacheChanges
from kvtransfer.eviction.choice import PolicyName, policy_maker


class HostCache:
    """At most `blocks` keys. Invariant: every key has a slot of its own, which is on offer to the policy."""

    def __init__(self, blocks: int, policy: PolicyName = "prefix_aware") -> None:
        self._policy = policy_maker(policy, blocks)()
        self._slots: dict[int, int] = {}
        self._keys = [0] * blocks
        self._free = list(range(blocks))

    def __len__(self) -> int:
        return len(self._slots)

    def prefix(self, keys: Sequence[int]) -> int:
        """How many of the first blocks are here; these are used now."""
        count = next((i for i, key in enumerate(keys) if key not in self._slots), len(keys))
        self._policy.withdraw([self._slots[key] for key in keys[:count]])
        self._offer(keys[:count])
        return count

    def store(self, keys: Sequence[int]) -> CacheChanges:
        """The blocks of one prompt are here from now on, as far as there is room. Returns what changed."""
        self._policy.withdraw([self._slots[key] for key in keys if key in self._slots])
        stored: list[int] = []
        removed: list[int] = []
        for key in keys:
            if key in self._slots:
                continue
            slot = self._free.pop() if self._free else self._evict(removed)
            if slot is None:
                break
            self._slots[key], self._keys[slot] = slot, key
            stored.append(key)
        self._offer([key for key in keys if key in self._slots])
        return CacheChanges(stored, removed)

    def _evict(self, removed: list[int]) -> int | None:
        slot = self._policy.choose()
        if slot is not None:
            removed.append(self._keys[slot])
            del self._slots[self._keys[slot]]
        return slot

    def _offer(self, keys: Sequence[int]) -> None:
        """The blocks of one prompt, from its start on."""
        self._policy.offer([self._slots[key] for key in reversed(keys)], [key.to_bytes(8) for key in reversed(keys)])
