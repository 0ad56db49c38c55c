"""What a store counts besides its slots."""

from dataclasses import dataclass


@dataclass(slots=True)
class StoreCounters:
    """Grow within one epoch."""

    pulled_blocks: int = 0
    pulled_bytes: int = 0
    pushed_blocks: int = 0
    pushed_bytes: int = 0
    failed_handoffs: int = 0
    late_handoffs: int = 0
