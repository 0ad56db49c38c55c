"""Token ids as the wire carries them: little-endian unsigned 32-bit."""

import sys
from array import array
from collections.abc import Sequence

from cluster.errors import InvalidRequest, ProtocolViolation

TOKEN_BYTES = 4


def pack_token_ids(token_ids: Sequence[int]) -> bytes:
    """Raises `InvalidRequest` for what is not an id."""
    try:
        packed = array("I", token_ids)
    except (OverflowError, TypeError) as error:
        raise InvalidRequest(f"token ids are integers from 0 to 4294967295: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_token_ids(data: bytes) -> list[int]:
    """Raises `ProtocolViolation` for a length that is not whole ids."""
    if len(data) % TOKEN_BYTES:
        raise ProtocolViolation(f"{len(data)} bytes are not whole token ids")
    packed = array("I")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()
