"""What a store counts besides its slots."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from kvtransfer.transport import Medium

Direction = Literal["pulled", "pushed"]

ChecksumPlace = Literal["load", "verify"]
"""When a block in the arena turned out corrupt: as an engine loaded it, wherever it had come from, or as somebody had
the store verified.
"""


@dataclass(slots=True)
class Moved:
    """So much so far."""

    blocks: int = 0
    bytes: int = 0


@dataclass(slots=True)
class StoreCounters:
    """Grow within one epoch."""

    failed_handoffs: int = 0
    late_handoffs: int = 0
    refused_connections: int = 0  # of who would be another store
    checksum_failures: Counter[ChecksumPlace] = field(default_factory=Counter)  # blocks
    traffic: dict[tuple[Direction, Medium], Moved] = field(default_factory=dict)

    def moved(self, direction: Direction, via: Medium, blocks: int, total_bytes: int) -> None:
        """Blocks went between this store and another."""
        moved = self.traffic.setdefault((direction, via), Moved())
        moved.blocks += blocks
        moved.bytes += total_bytes
