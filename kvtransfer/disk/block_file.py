"""A block as a file: a head of fixed size, then the block's bytes. Whatever is not whole is found out when it is read.

Head: magic, xxh3_64 of the rest, its length (unsigned 16-bit), the rest (a MessagePack map), zeros. The rest tells a
digest of the payload; the block's own checksum is for engines to understand. Nothing is synced: after a loss of power
a file may have any content, and is then dropped.
"""

import struct

import msgspec

from kvtransfer.checksum import block_checksum
from kvtransfer.errors import TornFile

MAGIC = b"BATONKV1"
HEAD_BYTES = 256
_front = struct.Struct("<8sQH")


class BlockHead(msgspec.Struct, frozen=True):
    """What a file says of its block; `checksum` is what its engine said, `digest` the xxh3_64 of the payload."""

    key: bytes
    tenant: bytes
    label: int | None
    checksum: int
    payload_bytes: int
    digest: int = 0

    def of(self, payload: memoryview) -> "BlockHead":
        """The head of a file with this payload."""
        return msgspec.structs.replace(self, digest=block_checksum(payload))

    def encode(self) -> bytes:
        """`HEAD_BYTES` bytes."""
        body = _encode(self)
        head = _front.pack(MAGIC, block_checksum(body), len(body)) + body
        if len(head) > HEAD_BYTES:
            raise ValueError(f"a key of {len(self.key)} bytes does not fit into a file's head")
        return head.ljust(HEAD_BYTES, b"\0")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BlockHead).decode


def decode_head(data: bytes) -> BlockHead:
    """Inverse of `encode`. Raises `TornFile`."""
    if len(data) < HEAD_BYTES:
        raise TornFile(f"a head of {len(data)} bytes")
    magic, checksum, length = _front.unpack_from(data)
    body = data[_front.size : _front.size + length]
    if magic != MAGIC or block_checksum(body) != checksum:
        raise TornFile("the head is damaged")
    return _decode(body)
