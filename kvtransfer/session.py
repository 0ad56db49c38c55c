"""What one greeted connection may ask of the store, without the connection: requests in, replies out.

`AwaitHandoff`, `Fetch`, `Watch` and `Verify` are not answered here: their replies come later, so
`kvtransfer.connection` runs them as tasks.
"""

from collections.abc import Callable
from typing import Any

from kvtransfer.errors import RequestRefused
from kvtransfer.inspection import Drop, ListSlots, Statistics, StoreStatistics, Traffic
from kvtransfer.protocol import (
    Abandon,
    Announce,
    Attach,
    Attached,
    Commit,
    Conclude,
    Distrust,
    Done,
    Failed,
    Label,
    Pin,
    Pinned,
    Release,
    Reply,
    Reserve,
    Reserved,
    Unpin,
)
from kvtransfer.store import Store


class StoreSession:
    """One owner's commands. `close` releases everything it held."""

    def __init__(self, store: Store, name: str, connections: Callable[[], int]) -> None:
        self.owner = store.open_owner(name)
        self._store = store
        self._connections = connections
        self._handlers: dict[type, Callable[[Any], Reply]] = {
            Attach: self._attach,
            Reserve: self._reserve,
            Commit: lambda r: Done(r.id, store.commit(self.owner, r.keys, r.checksums)),
            Abandon: lambda r: Done(r.id, store.abandon(self.owner, r.keys)),
            Announce: self._announce,
            Conclude: self._conclude,
            Release: lambda r: Done(r.id, store.release_handoff(self.owner, r.handoff_id)),
            Pin: lambda r: Pinned(r.id, store.pin(self.owner, r.keys)),
            Unpin: lambda r: Done(r.id, store.unpin(self.owner, r.keys)),
            Distrust: lambda r: Done(r.id, store.distrust(r.keys)),
            Label: lambda r: Done(r.id, store.label(r.keys, r.labels)),
            Statistics: self._statistics,
            ListSlots: store.page,
            Drop: store.drop,
        }

    def answer(self, request: Any) -> Reply:
        """The reply to any request that has one at once."""
        try:
            return self._handlers[type(request)](request)
        except RequestRefused as error:
            return Failed(request.id, str(error))

    def close(self) -> None:
        """Give back everything."""
        self._store.release_owner(self.owner)

    def _attach(self, request: Attach) -> Reply:
        arena = self._store.attach(request.slot_bytes)
        if request.seal is not None:
            self._store.seal_with(request.seal)
        return Attached(request.id, arena.slots, arena.slot_bytes)

    def _reserve(self, request: Reserve) -> Reply:
        reservation = self._store.reserve(self.owner, request.keys, request.tenant)
        return Reserved(request.id, reservation.slots, reservation.full)

    def _announce(self, request: Announce) -> Reply:
        self._store.announce(self.owner, request.handoff_id, request.keys)
        return Done(request.id, len(request.keys))

    def _conclude(self, request: Conclude) -> Reply:
        self._store.conclude(self.owner, request.handoff_id)
        return Done(request.id)

    def _statistics(self, request: Statistics) -> Reply:
        store, slots, counters = self._store, self._store.slot_statistics(), self._store.counters
        return StoreStatistics(
            id=request.id,
            epoch=store.epoch,
            slots=store.arena.slots if store.arena else 0,
            slot_bytes=store.arena.slot_bytes if store.arena else 0,
            free_slots=slots.free,
            writing_slots=slots.writing,
            committed_slots=slots.committed,
            pinned_slots=slots.pinned,
            pins=slots.pins,
            handoffs=store.open_handoffs,
            connections=self._connections(),
            committed_blocks=slots.committed_blocks,
            distrusted_blocks=slots.distrusted_blocks,
            failed_handoffs=counters.failed_handoffs,
            late_handoffs=counters.late_handoffs,
            evicted=dict(slots.evicted),
            checksum_failures=dict(counters.checksum_failures),
            traffic=[Traffic(way, via, moved.blocks, moved.bytes) for (way, via), moved in counters.traffic.items()],
            oldest_pin=store.oldest_pin(),
            oldest_writing=store.oldest_writing(),
            refused_connections=counters.refused_connections,
            **({} if store.disk is None else store.disk.statistics()),
        )
