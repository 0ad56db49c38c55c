"""What a worker reports about itself: the one place that names its counters and gauges. Pure.

Counters of the engine keep their names (`loaded_blocks`, ...), those of legs begin with `legs_`, `handoffs_` or
`fetches_`;
`kv_events_unplaced` counts cache events of which gateways do not learn, or not of every block: they continue a block
never heard of, or their content is more than tokens; `connections_refused` counts who would be a gateway and was not
let in. Gauges of the node's store begin with `store_`; every worker of
a node reports the same store, so they are gauges even where the store counts up, and must not be summed over workers of
one node. What follows a `/` in a gauge's name tells it from others of its family: `store_slots/free`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from cluster.dataplane.frames import FailureKind, Load, Role
from cluster.engines.engine import EngineStatistics
from cluster.workers.hold import Held
from kvtransfer.counters import ChecksumPlace
from kvtransfer.inspection import Oldest, StoreStatistics
from kvtransfer.slot_records import EvictionReason

STORE_GAUGES: Mapping[str, str] = {
    "store_slots": "slots",
    "store_slots/free": "free_slots",
    "store_slots/writing": "writing_slots",
    "store_slots/committed": "committed_slots",
    "store_slots/pinned": "pinned_slots",
    "store_pins": "pins",
    "store_handoffs": "handoffs",
    "store_connections": "connections",
    "store_committed_blocks": "committed_blocks",
    "store_distrusted_blocks": "distrusted_blocks",
    "store_failed_handoffs": "failed_handoffs",
    "store_late_handoffs": "late_handoffs",
    "store_refused_connections": "refused_connections",
    "store_disk_blocks": "disk_blocks",
    "store_disk_written_blocks": "disk_written_blocks",
    "store_disk_read_blocks": "disk_read_blocks",
    "store_disk_evicted_blocks": "disk_evicted_blocks",
    "store_disk_unkept_blocks": "disk_unkept_blocks",
    "store_disk_failed_writes": "disk_failed_writes",
    "store_checksum_failures/disk": "disk_damaged_files",
}
"""Gauge by the field of `StoreStatistics` it shows."""

STORE_UP = "store_up"
"""1 while the worker is connected to its node's store, else 0."""

LOADED_BYTES = "loaded_bytes"
"""What the engine took from its node's store, wherever it had come from. Pulls between nodes are counted apart."""


class LegCounters:
    """What has become of this worker's legs; only grows."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._held_s = self._fetching_s = 0.0

    def started(self, role: Role) -> None:
        self._counts[f"legs_{role}"] += 1

    def failed(self, kind: FailureKind) -> None:
        self._counts[f"legs_failed_{kind}"] += 1

    def aborted(self) -> None:
        self._counts["legs_aborted"] += 1

    def held(self, held: Held) -> None:
        self._counts[f"handoffs_{held.outcome}"] += 1
        self._counts["handoffs_pulled_blocks"] += held.pulled_blocks
        self._counts["handoffs_pulled_bytes"] += held.pulled_bytes
        self._held_s += held.held_s

    def fetched(self, held: Held) -> None:
        self._counts[f"fetches_{held.fetch_outcome}"] += 1
        self._counts["fetches_pulled_blocks"] += held.pulled_blocks
        self._counts["fetches_pulled_bytes"] += held.pulled_bytes
        self._fetching_s += held.held_s

    def snapshot(self) -> dict[str, float]:
        """All counters by name."""
        return {**self._counts, "handoffs_held_seconds": self._held_s, "fetches_seconds": self._fetching_s}


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a load is made of, apart from the engine's statistics."""

    held: int
    healthy: bool
    draining: bool
    handing_back: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)
    store: StoreStatistics | None = None
    block_bytes: int = 0  # of a block in the store; 0 before that is known


def build_load(engine: EngineStatistics, state: WorkerState) -> Load:
    """The report of this moment."""
    loaded_blocks = engine.counters.get("loaded_blocks", 0.0)
    return Load(
        running=engine.running,
        waiting=engine.waiting,
        held=state.held,
        queued_prefill_tokens=engine.queued_prefill_tokens,
        kv_usage=engine.kv_usage,
        healthy=state.healthy,
        draining=state.draining,
        handing_back=state.handing_back,
        counters={**engine.counters, **state.counters, LOADED_BYTES: loaded_blocks * state.block_bytes},
        gauges=_store_gauges(state.store),
    )


def _store_gauges(store: StoreStatistics | None) -> dict[str, float]:
    if store is None:
        return {STORE_UP: 0.0}
    gauges = {STORE_UP: 1.0, **{gauge: float(getattr(store, name)) for gauge, name in STORE_GAUGES.items()}}
    for reason in get_args(EvictionReason):
        gauges[f"store_evicted_blocks/{reason}"] = float(store.evicted.get(reason, 0))
    for place in get_args(ChecksumPlace):
        gauges[f"store_checksum_failures/{place}"] = float(store.checksum_failures.get(place, 0))
    for traffic in store.traffic:
        gauges[f"store_moved_blocks/{traffic.direction}/{traffic.medium}"] = float(traffic.blocks)
        gauges[f"store_moved_bytes/{traffic.direction}/{traffic.medium}"] = float(traffic.bytes)
    gauges["store_oldest_pin_seconds"] = _whole_seconds(store.oldest_pin)
    gauges["store_oldest_writing_seconds"] = _whole_seconds(store.oldest_writing)
    return gauges


def _whole_seconds(oldest: Oldest | None) -> float:
    """Whole ones, so that a load does not change with every look at the clock."""
    return 0.0 if oldest is None else float(int(oldest.age_s))
