"""How many slots a store's arena has."""

from kvtransfer.arena import Arena
from kvtransfer.errors import RequestRefused

MAX_SLOTS = 1 << 22


def arena_of(arena_bytes: int, slot_bytes: int) -> Arena:
    """As many whole slots as go into `arena_bytes`. Raises `RequestRefused` when that is none, or cannot be had."""
    slots = arena_bytes // slot_bytes if slot_bytes > 0 else 0
    if not 0 < slots <= MAX_SLOTS:
        raise RequestRefused(
            f"an arena of {arena_bytes} bytes cannot be cut into slots of {slot_bytes} bytes: "
            f"that makes {slots} slots, allowed are 1 to {MAX_SLOTS}"
        )
    try:
        return Arena.create(slots, slot_bytes)
    except OSError as error:
        raise RequestRefused(f"no memory for an arena of {slots * slot_bytes} bytes: {error}") from error
