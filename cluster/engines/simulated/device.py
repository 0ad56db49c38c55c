"""The simulated device's memory: the bytes of every block and a digest of the bytes that are really there."""

from array import array

import numpy as np

from cluster.engines.simulated.tokens import BlockFiller, KvBytes, fold
from kvtransfer.checksum import block_checksum


class DeviceMemory:
    """`digests[b]` is the digest of `bytes[b]` for every block that was computed or loaded whole."""

    def __init__(self, blocks: int, block_bytes: int) -> None:
        self._bytes = np.zeros((blocks, block_bytes), np.uint8)
        self._digests = np.zeros(blocks, np.uint64)
        self._filler = BlockFiller(block_bytes)

    def compute(self, block: int, previous: int, tokens: bytes) -> None:
        """Fill a block as the successor of one whose digest is `previous`."""
        row = self._bytes[block]
        self._filler.fill(row, previous, tokens)
        self._digests[block] = block_checksum(row)

    def load(self, block: int, source: KvBytes) -> int:
        """Copy a block's bytes in; returns the digest of what arrived, which is also its checksum."""
        row = self._bytes[block]
        np.copyto(row, source)
        arrived = block_checksum(row)
        self._digests[block] = arrived
        return arrived

    def save(self, block: int, destination: KvBytes) -> int:
        """Copy a block's bytes out; returns the checksum of the copy."""
        np.copyto(destination, self._bytes[block])
        return block_checksum(destination)

    def digest(self, block: int) -> int:
        """Of the bytes that are in the block."""
        return int(self._digests[block])

    def fold(self, blocks: "array[int]", whole: int, tail: bytes, position: int) -> int:
        """What the model sees: the first `whole` blocks of a block table, and the tokens after them."""
        rows = np.frombuffer(blocks, np.intc, whole) if whole else ()
        return fold(self._digests.take(rows).tobytes() if whole else b"", tail, position)
