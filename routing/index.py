"""Which blocks lie where: the seam between those who tell it and the router that asks.

A place is a replica's device, or the host memory of its node as far as that replica has told. The index holds a subset
of the truth at the time of the last event, never more. A replica is EXACT once a snapshot of its device is in, DEGRADED
from when it was last heard of until then; a degraded one earns no credit.

The one implementation is `routing.index_blocks.BlockIndex`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol


class Tier(Enum):
    """Where on a replica's node a block lies."""

    DEVICE = "device"
    HOST = "host"


class Prefixes(NamedTuple):
    """How many of a prompt's first blocks can be used, from block 0 on without a gap; absent means none.

    By replica id: `device`, blocks on its device; `host`, blocks on its device or in the host tier of its node, which
    an engine loads where the device ends; `promised`, blocks on its device or promised by prompts in flight there;
    `coming`, the same of those that are promised more than is on their device and tell of their host tier as well.
    By store: `stores`, blocks in it, which other nodes may fetch: its replicas' host tier, as all of them together have
    told of it. Mappings may be one and the same object: read them only.
    """

    device: Mapping[str, int]
    host: Mapping[str, int]
    promised: Mapping[str, int]
    coming: Mapping[str, int]
    stores: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """A truthful snapshot. `refused` counts keys that were not taken in because the budget was reached; only grows.

    `keys` are different keys, `places` pairs of key and place, `promised` open promises. `bytes` is an upper bound of
    the memory they take.
    """

    keys: int
    places: int
    bytes: int
    exact: int
    degraded: int
    promised: int
    refused: int


class KvIndex(Protocol):
    """What the router asks and who feeds it. A replica is known from `place` or its first snapshot on, until `drop`.

    `changed` is called whenever blocks may have come or a promise may have ended; it must not change the index.
    """

    changed: Callable[[], None]

    # Fed by the workers' events

    def place(self, replica_id: str, store: str) -> None:
        """The replica shares that store, its host tier: see `routing.fleet.store_of`. Told on connect, before its first
        snapshot.
        """
        ...

    def snapshot(self, replica_id: str, tier: Tier, keys: Iterable[int]) -> None:
        """Exactly these blocks lie there now; the replica becomes EXACT with the snapshot of its device."""
        ...

    def apply(self, replica_id: str, tier: Tier, stored: Iterable[int], removed: Iterable[int]) -> None:
        """These blocks appeared, then those went. Ignored for a tier whose snapshot is still to come."""
        ...

    def degrade(self, replica_id: str) -> None:
        """Nothing is heard of it any more: forget all it holds, until a snapshot comes. Its promises stay."""
        ...

    def drop(self, replica_id: str) -> None:
        """It is gone for good, and its promises with it."""
        ...

    # Fed by this gateway's own placements

    def promise(self, replica_id: str, keys: Sequence[int], until: float) -> int:
        """A prompt placed there will bring these blocks (from its block 0 on), unless time `until` comes first.

        The number that `retract` takes; numbers are never used twice. Equal promises add up. To an unknown replica
        nothing is promised.
        """
        ...

    def retract(self, promise: int) -> None:
        """The blocks are there, or will not come. A promise that ended already is fine."""
        ...

    # Asked by the router

    def longest_prefix(self, keys: Sequence[int], now: float) -> Prefixes:
        """For all replicas at once; exact also where a tier has holes in the middle of a prompt."""
        ...

    def statistics(self) -> IndexStatistics:
        """A snapshot, O(replicas)."""
        ...
