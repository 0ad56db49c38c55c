"""A gateway's end of one worker's KV events: passed on in order, or the connection is given up. Pure.

Invariant: between `entered` and `closed` the listener hears every frame of the connection, and outside of that nothing;
after `retire` it hears nothing at all, whatever still comes.
"""

from typing import Protocol

from cluster.dataplane.frames import KvEvents, KvTier, WorkerInfo
from cluster.errors import ProtocolViolation


class KvListener(Protocol):
    """Whoever keeps an index of what the workers hold."""

    def kv_placed(self, replica_id: str, info: WorkerInfo) -> None:
        """Connected: snapshots of its tiers follow."""
        ...

    def kv_events(self, replica_id: str, events: KvEvents) -> None:
        """In order within a connection; a snapshot begins each tier. Raises `ProtocolViolation` to end it."""
        ...

    def kv_lost(self, replica_id: str) -> None:
        """The connection is gone: nothing is known of this replica any more."""
        ...

    def kv_dropped(self, replica_id: str) -> None:
        """The replica is not listed any more. One of the same name that is listed later begins anew."""
        ...


class KvInbox:
    """One worker's events, over all its connections."""

    def __init__(self, replica_id: str, listener: KvListener | None) -> None:
        self._replica_id = replica_id
        self._listener = listener
        self._next_sequence = 0
        self._begun: set[KvTier] = set()

    def entered(self, info: WorkerInfo) -> None:
        """A connection begins."""
        self._next_sequence = 0
        self._begun.clear()
        if self._listener is not None:
            self._listener.kv_placed(self._replica_id, info)

    def received(self, events: KvEvents) -> None:
        """Raises `ProtocolViolation` when a frame is missing or out of order: the next connection begins anew."""
        if events.sequence != self._next_sequence:
            raise ProtocolViolation(f"KV events number {events.sequence} came instead of {self._next_sequence}")
        if events.snapshot:
            self._begun.add(events.tier)
        elif events.tier not in self._begun:
            raise ProtocolViolation(f"KV events of the {events.tier} tier began without a snapshot")
        self._next_sequence += 1
        if self._listener is not None:
            self._listener.kv_events(self._replica_id, events)

    def closed(self) -> None:
        """The connection is gone."""
        if self._listener is not None:
            self._listener.kv_lost(self._replica_id)

    def retire(self) -> None:
        """The worker is not listed any more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.kv_dropped(self._replica_id)
