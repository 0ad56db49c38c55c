"""The destination's side of a pull: what lands in this store on behalf of one waiting connection.

A block that another pull or a local engine is already writing is not asked for again; the pull waits for that writer
instead. Everything that is here is pinned until `close`.
"""

from collections.abc import Sequence

from kvtransfer.arena import Arena
from kvtransfer.slot_records import Owner
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
        self._pinned: list[BlockKey] = []

    @property
    def arena(self) -> Arena | None:
        """See `BlockSink`."""
        return self._store.arena

    def missing(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        """See `BlockSink`."""
        self.announced = keys
        self._pin(keys)
        return self._store.absent(keys)

    def reserve(self, keys: Sequence[BlockKey]) -> Sequence[memoryview | None]:
        """See `BlockSink`."""
        slots = self._store.reserve(self._owner, keys, self._tenant).slots
        arena = self._store.arena
        if arena is None:
            return [None] * len(keys)
        views = iter(arena.views(slot for slot in slots if slot is not None))
        return [None if slot is None else next(views) for slot in slots] if None in slots else list(views)

    def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int], via: Medium) -> None:
        """See `BlockSink`."""
        committed = self._store.commit_and_gather(self._owner, "", keys, checksums)
        self._pinned += committed
        self._store.count_pulled(len(committed), via)

    def abandon(self, keys: Sequence[BlockKey]) -> None:
        """See `BlockSink`."""
        self._store.abandon(self._owner, keys)

    def pass_on(self, owner: Owner, handoff_id: str) -> int:
        """What is here of the announced blocks stays pinned for `owner`, as if it had gathered it; how many blocks."""
        self._store.pass_on(self._owner, owner, handoff_id)
        return len(self._pinned) + len(self._store.gather(owner, handoff_id, self._others()))

    @property
    def is_settled(self) -> bool:
        """Whether no announced block is being written by anybody."""
        return not any(map(self._store.is_being_written, self._others()))

    async def settle(self) -> None:
        """Return when it is. The caller brings the deadline."""
        for key in self._others():
            await self._store.until_written(key)

    def close(self) -> None:
        """Give back everything."""
        self._store.release_owner(self._owner)

    def _others(self) -> list[BlockKey]:
        """Announced blocks that were not here so far."""
        if len(self._pinned) == len(self.announced):
            return []
        pinned = set(self._pinned)
        return [key for key in self.announced if key not in pinned]

    def _pin(self, keys: Sequence[BlockKey]) -> None:
        self._pinned += self._store.gather(self._owner, "", keys)
