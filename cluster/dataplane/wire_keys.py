"""Block keys as the wire carries them: little-endian unsigned 64-bit."""

import sys
from collections.abc import Iterable

from cluster.errors import ProtocolViolation
from routing.packed_keys import PackedKeys, pack

KEY_BYTES = 8


def pack_keys(keys: Iterable[int]) -> bytes:
    """Raises OverflowError for what is not 64 bits."""
    packed = pack(keys)
    if sys.byteorder == "big":
        packed = packed[:]
        packed.byteswap()
    return packed.tobytes()


def unpack_keys(data: bytes) -> PackedKeys:
    """Raises `ProtocolViolation` for a length that is not whole keys."""
    if len(data) % KEY_BYTES:
        raise ProtocolViolation(f"{len(data)} bytes are not whole block keys")
    keys = pack(())
    keys.frombytes(data)
    if sys.byteorder == "big":
        keys.byteswap()
    return keys
