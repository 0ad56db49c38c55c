"""Feeds the router's index with what this gateway hears from its workers.

A worker that connects is placed at its store and its snapshots follow; one whose connection is gone is degraded at once
(a killed process resets it, nobody waits for a deadline) and earns no credit until it is back; one that is not listed
any more is dropped.
"""

from collections.abc import Callable

from cluster.dataplane.frames import KvEvents, WorkerInfo
from cluster.dataplane.wire_keys import unpack_keys
from routing.fleet import store_of
from routing.index import KvIndex, Tier

TIERS = {tier.value: tier for tier in Tier}


class KvIndexFeed:
    """Implements `cluster.dataplane.kv_inbox.KvListener`. `gone` replaces dropping a replica from the index."""

    def __init__(self, index: KvIndex, gone: Callable[[str], None] | None = None) -> None:
        self._index = index
        self._gone = gone or index.drop

    def kv_placed(self, replica_id: str, info: WorkerInfo) -> None:
        """See the seam."""
        self._index.place(replica_id, store_of(info.node_id, info.kv_fingerprint))

    def kv_events(self, replica_id: str, events: KvEvents) -> None:
        """See the seam. Raises `ProtocolViolation` for what is not whole keys."""
        tier, stored = TIERS[events.tier], unpack_keys(events.stored)
        if events.snapshot:
            self._index.snapshot(replica_id, tier, stored)
        else:
            self._index.apply(replica_id, tier, stored, unpack_keys(events.removed))

    def kv_lost(self, replica_id: str) -> None:
        """See the seam."""
        self._index.degrade(replica_id)

    def kv_dropped(self, replica_id: str) -> None:
        """See the seam."""
        self._gone(replica_id)
