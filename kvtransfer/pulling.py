"""The destination's side of a pull: what lands in this store on behalf of one waiting connection.

A block that another pull or a local engine is already writing is not asked for again; the pull waits for that writer
instead. Everything that is here is pinned until `close`.
"""

from collections.abc import Sequence

from kvtransfer.arena import Arena
from kvtransfer.store import Store
from kvtransfer.tenant import NO_TENANT, Tenant
from kvtransfer.transport import BlockKey, Medium


class PullSink:
    """A `BlockSink` of a store, for blocks of one tenant. One pull, then `close`."""

    def __init__(self, store: Store, tenant: Tenant = NO_TENANT) -> None:
        self._tenant = tenant
        self.announced: Sequence[BlockKey] = ()
        self._store = store
        self._owner = store.open_owner("a pull")
        self._pinned: set[BlockKey] = set()

    @property
    def arena(self) -> Arena | None:
        """See `BlockSink`."""
        return self._store.arena

    def missing(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        """See `BlockSink`."""
        self.announced = keys
        self._pin(keys)
        return [key for key in keys if key not in self._pinned and not self._store.is_being_written(key)]

    def reserve(self, keys: Sequence[BlockKey]) -> Sequence[memoryview | None]:
        """See `BlockSink`."""
        slots = self._store.reserve(self._owner, keys, self._tenant).slots
        arena = self._store.arena
        return [None if slot is None or arena is None else arena.slot(slot) for slot in slots]

    def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int], via: Medium) -> None:
        """See `BlockSink`."""
        committed = self._store.commit(self._owner, keys, checksums)
        self._pin(keys)
        self._store.count_pulled(committed, via)

    def abandon(self, keys: Sequence[BlockKey]) -> None:
        """See `BlockSink`."""
        self._store.abandon(self._owner, keys)

    async def settle(self) -> None:
        """Return when no announced block is being written by anybody. The caller brings the deadline."""
        for key in self.announced:
            await self._store.until_written(key)

    def close(self) -> None:
        """Give back everything."""
        self._store.release_owner(self._owner)

    def _pin(self, keys: Sequence[BlockKey]) -> None:
        self._pinned.update(self._store.gather(self._owner, "", keys))
