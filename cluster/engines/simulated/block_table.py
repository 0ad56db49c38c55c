"""The blocks of the simulated device: who refers to them and which contents can be found again.

Owns the free list, the reference counts and the prefix cache. A block is in exactly one of three places: free, idle
(cached, referred to by nobody, evicted least recently used first), or held (at least one reference). Knows nothing
of requests or bytes.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class OutOfBlocks(Exception):
    """More blocks were asked for than are free or idle."""


class BlockTable:
    """See `check` for the invariant."""

    def __init__(self, blocks: int) -> None:
        self._free = list(range(blocks - 1, -1, -1))
        self._references = [0] * blocks
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._evicted: list[bytes] = []

    def __repr__(self) -> str:
        return f"<BlockTable held={self.held} idle={len(self._idle)} free={len(self._free)}>"

    @property
    def available(self) -> int:
        """Blocks that can be allocated now, some by eviction."""
        return len(self._free) + len(self._idle)

    @property
    def held(self) -> int:
        """Blocks somebody refers to."""
        return len(self._references) - self.available

    def take_prefix(self, hashes: Iterable[bytes]) -> list[int]:
        """Refer to the blocks of the longest cached prefix of `hashes`."""
        taken = []
        for key in hashes:
            block = self._block_of.get(key)
            if block is None:
                break
            taken.append(block)
        self.share(taken)
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block, which must be held or cached."""
        for block in blocks:
            if self._references[block] == 0:
                del self._idle[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Blocks with one reference each and no content; evicts idle ones when none are free."""
        if count > self.available:
            raise OutOfBlocks(f"{count} blocks asked for, {self.available} available")
        blocks = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def publish(self, block: int, key: bytes) -> bool:
        """A held block now holds the content of `key`. False when that content is already cached elsewhere."""
        assert self._references[block] > 0, f"block {block} is published by nobody"
        if key in self._block_of:
            return self._block_of[key] == block
        assert block not in self._hash_of, f"block {block} already holds other content"
        self._block_of[key] = block
        self._hash_of[block] = key
        return True

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each block of a chain; the chain's end becomes the first to evict."""
        for block in reversed(blocks):
            assert self._references[block] > 0, f"block {block} is released too often"
            self._references[block] -= 1
            if self._references[block] == 0:
                self._retire(block)

    def clear(self) -> None:
        """Forget all cached content; held blocks stay held."""
        self._free += self._idle
        self._idle.clear()
        self._block_of.clear()
        self._hash_of.clear()
        self._evicted.clear()

    def drain_evicted(self) -> list[bytes]:
        """Contents evicted since the last call, in order."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def check(self) -> None:
        """Raise AssertionError unless every block is in exactly one place and the two maps mirror each other."""
        held = {block for block, count in enumerate(self._references) if count > 0}
        places = [*self._free, *self._idle, *held]
        assert sorted(places) == list(range(len(self._references))), "a block is lost or in two places"
        assert all(count >= 0 for count in self._references)
        assert {block: key for key, block in self._block_of.items()} == self._hash_of
        assert set(self._idle) <= set(self._hash_of), "an idle block without content"
        assert not set(self._free) & set(self._hash_of), "a free block with content"

    def _retire(self, block: int) -> None:
        if block in self._hash_of:
            self._idle[block] = None
        else:
            self._free.append(block)

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        key = self._hash_of.pop(block)
        del self._block_of[key]
        self._evicted.append(key)
        return block
