"""How a block lies in a slot: `[kv head][layer][unit]`, heads outermost, and after them the heads' digests.

A unit is what one (layer, head) pair holds of one block: opaque bytes, packed as the engine likes. With the heads
outermost, the heads of one tensor-parallel rank are one contiguous range for any degree. Each head has a digest of its
own, so that a rank can write and verify its heads without the others; the block's checksum is the sum of the digests.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvtransfer.fingerprint import KvFingerprint
from kvtransfer.seal import DIGEST_BYTES, Seal

Bytes = NDArray[np.uint8]
Words = NDArray[np.generic]

ALIGNMENT_BYTES = 64  # a cache line


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Shape of one slot, for the heads of the whole model."""

    layers: int
    kv_heads: int
    unit_bytes: int

    @classmethod
    def of(cls, fingerprint: KvFingerprint) -> "SlotLayout":
        """The layout all engines of this fingerprint share."""
        return cls(fingerprint.layers, fingerprint.kv_heads, fingerprint.unit_bytes)

    @property
    def head_bytes(self) -> int:
        return self.layers * self.unit_bytes

    @property
    def block_bytes(self) -> int:
        """Where the digests begin."""
        return self.kv_heads * self.head_bytes

    @property
    def slot_bytes(self) -> int:
        """Block and digests, up to the next cache line."""
        used = self.block_bytes + self.kv_heads * DIGEST_BYTES
        return -(-used // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    @property
    def seal(self) -> Seal:
        """For the store, so that it can verify blocks itself."""
        return Seal(self.kv_heads, self.head_bytes)


@dataclass(frozen=True, slots=True)
class HeadShare:
    """The KV heads of one rank: `count` from `first` on. `writes`: this rank is the one that saves them."""

    first: int
    count: int
    writes: bool = True

    @property
    def heads(self) -> range:
        return range(self.first, self.first + self.count)


def share_of(rank: int, ranks: int, kv_heads: int) -> HeadShare:
    """The heads that vLLM gives to `rank` of `ranks` tensor-parallel workers.

    With more ranks than heads each head is held by several neighbouring ranks, of which the first saves it. Raises
    `ValueError` when neither number divides the other.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks}")
    if kv_heads % ranks == 0:
        count = kv_heads // ranks
        return HeadShare(rank * count, count)
    if ranks % kv_heads == 0:
        holders = ranks // kv_heads
        return HeadShare(rank // holders, 1, writes=rank % holders == 0)
    raise ValueError(f"{kv_heads} KV heads cannot be divided among {ranks} tensor-parallel ranks, nor these among them")
