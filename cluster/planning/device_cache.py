"""The KV blocks of one simulated device: which content is there, who needs it, what goes first.

A block is free, idle (its content can be found, nobody needs it: evicted least recently used first) or held. A held
block has a key once its content is known, and is anonymous before. Keys are held by count; two requests with equal
prompts hold one block. Invariant: see `check`.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheChanges:
    """Keys that appeared, then keys that went. False when there are none."""

    stored: Sequence[int]
    removed: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.stored or self.removed)


class DeviceCache:
    """Counts of anonymous blocks, reference counts of held keys, and idle keys by age."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._anonymous = 0
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._stored: list[int] = []
        self._removed: list[int] = []

    def __repr__(self) -> str:
        return f"<DeviceCache held={self.held} idle={len(self._idle)} of {self._blocks}>"

    @property
    def held(self) -> int:
        """Blocks that somebody needs."""
        return self._anonymous + len(self._references)

    @property
    def available(self) -> int:
        """Blocks that can be allocated now, some by eviction."""
        return self._blocks - self.held

    @property
    def usage(self) -> float:
        """The share of the device that is held."""
        return self.held / self._blocks

    def __contains__(self, key: int) -> bool:
        return key in self._references or key in self._idle

    def prefix(self, keys: Sequence[int]) -> int:
        """How many of the first blocks are here."""
        for count, key in enumerate(keys):
            if key not in self._references and key not in self._idle:
                return count
        return len(keys)

    def idle_among(self, keys: Iterable[int]) -> int:
        """How many of these are here and held by nobody: holding them takes from what is available."""
        return sum(key in self._idle for key in keys)

    def hold(self, keys: Iterable[int]) -> None:
        """Refer to blocks that are here."""
        references, idle = self._references, self._idle
        for key in keys:
            count = references.get(key, 0)
            if not count:
                del idle[key]
            references[key] = count + 1

    def allocate(self, count: int) -> None:
        """`count` anonymous blocks, evicting idle ones when none are free. There must be enough available."""
        assert count <= self.available, f"{count} blocks asked of {self!r}"
        self._anonymous += count
        excess = self.held + len(self._idle) - self._blocks
        for _ in range(excess):
            self._removed.append(self._idle.popitem(last=False)[0])

    def publish(self, keys: Iterable[int]) -> None:
        """An anonymous block each now has this content; where it is here already, the copy is given back."""
        references, idle = self._references, self._idle
        for key in keys:
            self._anonymous -= 1
            count = references.get(key, 0)
            if not count:
                if key in idle:
                    del idle[key]
                else:
                    self._stored.append(key)
            references[key] = count + 1

    def release(self, keys: Sequence[int], anonymous: int) -> None:
        """Give up a chain of keys and `anonymous` blocks more; the end of the chain becomes the first to evict."""
        references, idle = self._references, self._idle
        for key in reversed(keys):
            count = references[key] - 1
            if count:
                references[key] = count
            else:
                del references[key]
                idle[key] = None
        self._anonymous -= anonymous

    def take_changes(self) -> CacheChanges:
        """Keys that appeared and keys that went since the last call, net of what came and went in between."""
        stored, removed = self._stored, self._removed
        if removed:
            stored, removed = [k for k in stored if k in self], [k for k in removed if k not in self]
        changes = CacheChanges(stored, removed)
        self._stored, self._removed = [], []
        return changes

    def keys(self) -> set[int]:
        """Everything that can be found here."""
        return self._references.keys() | self._idle.keys()

    def check(self) -> None:
        """Assert that every block is in exactly one place."""
        assert self._anonymous >= 0, "more anonymous blocks were given back than taken"
        assert not self._references.keys() & self._idle.keys(), "a key is both held and idle"
        assert all(count > 0 for count in self._references.values()), "a key is held by nobody"
        assert self.held + len(self._idle) <= self._blocks, f"more blocks than the device has: {self!r}"
