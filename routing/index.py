"""Which blocks lie where: block keys against replicas and tiers, fed by what the workers tell.

A place is a replica's device, or the host memory of its node as far as that replica has told: two bits. The index
holds a subset of the truth at the time of the last event, never more. A replica is EXACT once a snapshot of its device
is in, DEGRADED from when it was last heard of until then; a degraded one earns no credit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Tier(Enum):
    """Where on a replica's node a block lies."""

    DEVICE = "device"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """How many of a prompt's first blocks each replica can use, by replica id; absent means none.

    `device` and `host` are each tier alone. `promised` is what the device will hold once prompts in flight there are
    computed.
    """

    device: Mapping[str, int]
    host: Mapping[str, int]
    promised: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """A truthful snapshot. `refused` counts keys that were not taken in because the budget was reached; only grows."""

    keys: int
    bytes: int
    exact: int
    degraded: int
    promised: int
    refused: int


class KvIndex(Protocol):
    """What the router asks and who feeds it."""

    # Fed by the workers' events

    def snapshot(self, replica_id: str, tier: Tier, keys: Iterable[int]) -> None:
        """Exactly these blocks lie there now; the replica becomes EXACT with the snapshot of its device."""
        ...

    def apply(self, replica_id: str, tier: Tier, stored: Iterable[int], removed: Iterable[int]) -> None:
        """These blocks appeared, then those went. Ignored for a degraded replica: its snapshot is still to come."""
        ...

    def degrade(self, replica_id: str) -> None:
        """Nothing is heard of it any more: forget all it holds, until a snapshot comes."""
        ...

    def drop(self, replica_id: str) -> None:
        """It is gone for good."""
        ...

    # Fed by this gateway's own placements

    def promise(self, replica_id: str, keys: Sequence[int], until: float) -> None:
        """A prompt placed there will bring these blocks, unless time `until` comes first. Later promises may repeat."""
        ...

    # Asked by the router

    def longest_prefix(self, keys: Sequence[int], now: float) -> Prefixes:
        """For all replicas at once; exact also where a tier has holes in the middle of a prompt."""
        ...
