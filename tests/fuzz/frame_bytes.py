"""Frames as bytes, sound or not: cut off, changed, of lengths that are not theirs. Pure."""

import random

from kvtransfer.framing import frame


def spoiled_frame(body: bytes, rng: random.Random, share: float = 0.15) -> bytes:
    """The frame of a body; in this share of cases something is wrong with the bytes."""
    if rng.random() >= share:
        return frame(body)
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.choice((1, 3, 4, 5, 60)))
        case 1:
            return frame(rng.randbytes(rng.choice((0, 1, 30, 500))))
        case 2:
            return frame(body[: rng.randrange(len(body) + 1)])
        case 3:
            return frame(_flipped(body, rng))
        case 4:
            return frame(body)[: rng.randrange(len(body) + 4)]
        case 5:
            declared = rng.choice((len(body) + 1, len(body) * 2, 4097, 2**20, 2**26, 2**26 + 1, 2**31, 2**32 - 1))
            return declared.to_bytes(4, "little") + body
        case 6:
            return frame(body + rng.choice((b"\x00", b"\xc1", body)))
        case _:
            return frame(rng.choice((b"", b"\xc1", b"\x91" * 3000, b"\x81\xa1a" * 3000, b"\xdf\xff\xff\xff\xff",
            b"\xdd\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff")))  # fmt: skip


def _flipped(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 10))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)
