"""How the engines of a store make a block's checksum, so that the store itself can tell whether a block is sound."""

import msgspec
import xxhash

from kvtransfer.checksum import block_checksum

DIGEST_BYTES = 8
MASK = (1 << 64) - 1


class Seal(msgspec.Struct, frozen=True):
    """`heads` parts of `head_bytes` each, and behind them their digests: xxh3_64, seeded by the part's number, little-
    endian; the checksum is their sum modulo 2**64. Without parts it is the xxh3_64 of the whole slot.
    """

    heads: int = 0
    head_bytes: int = 0

    def fits(self, slot_bytes: int) -> bool:
        """Whether slots of this size can bear it."""
        used = self.heads * (self.head_bytes + DIGEST_BYTES)
        return self.heads >= 0 and self.head_bytes >= 0 and used <= slot_bytes

    def is_sound(self, slot: memoryview, checksum: int) -> bool:
        """Whether the slot holds what it held when its engine gave it this checksum."""
        if not self.heads:
            return block_checksum(slot) == checksum
        ends = self.heads * self.head_bytes
        parts = (slot[head * self.head_bytes : (head + 1) * self.head_bytes] for head in range(self.heads))
        digests = [xxhash.xxh3_64_intdigest(part, head) for head, part in enumerate(parts)]
        written = slot[ends : ends + self.heads * DIGEST_BYTES]
        return sum(digests) & MASK == checksum and b"".join(_bytes(digest) for digest in digests) == written


def _bytes(digest: int) -> bytes:
    return digest.to_bytes(DIGEST_BYTES, "little")
