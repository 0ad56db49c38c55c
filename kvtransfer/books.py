"""The books of a node's KV store: joins the slot table, the hand-off table and the arena. Nothing here waits.

Every holder (a connection, a pull) is an `Owner`; `release_owner` gives back all it had: slots being written, pins,
hand-offs it produced.

Invariant (`check`): the pins in the slot table are those of the owners, the hand-offs and the blocks that are being
copied elsewhere.
"""

from collections.abc import Callable, Iterable, Sequence

from kvtransfer.arena import Arena
from kvtransfer.arena_size import arena_of
from kvtransfer.counters import ChecksumPlace, StoreCounters
from kvtransfer.errors import RequestRefused
from kvtransfer.eviction.choice import policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.handoffs import HandoffPlan, HandoffTable, HandoffView
from kvtransfer.names import BlockNames
from kvtransfer.owners import Owners
from kvtransfer.protocol import PinnedBlock
from kvtransfer.settings import StoreSettings
from kvtransfer.signals import Notify
from kvtransfer.slot_records import Owner, Reservation, Watermarks
from kvtransfer.slots import Follower, SlotTable
from kvtransfer.tenant import NO_TENANT, Tenant
from kvtransfer.transport import BlockKey, Medium

CROWDED = "crowded"
"""What `changed` is told when the high watermark is passed."""


class StoreBooks:
    """All commands of the local protocol, by owner.

    `changed` is told of every hand-off and block that changed, by name, and of the books themselves once there is an
    arena.
    """

    def __init__(self, settings: StoreSettings, epoch: str, clock: Callable[[], float], changed: Notify) -> None:
        self.epoch = epoch
        self.arena: Arena | None = None
        self.counters = StoreCounters()
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._followers: list[Follower] = []
        self._names = BlockNames()
        self._slots = self._slot_table(0)
        self._handoffs = HandoffTable(settings.max_handoffs, settings.handoff_ttl_s)
        self._owners = Owners()
        self._moving = 0  # pins of blocks that are being copied elsewhere

    # Owners

    def open_owner(self, name: str = "nameless") -> Owner:
        """A new owner, to be given back with `release_owner`; `name` is for people."""
        return self._owners.open(name)

    def release_owner(self, owner: Owner) -> None:
        """The owner is gone."""
        self._lost(self._slots.release_owner(owner))
        self._apply(self._handoffs.conclude_all(owner, self._slots.is_being_written))
        self._slots.unpin(self._owners.close(owner))

    # Arena and slots

    def attach(self, slot_bytes: int) -> Arena:
        """The arena; the first call decides its slot size. Raises `RequestRefused` for another size."""
        if self.arena is None:
            self.arena = arena_of(self._settings.arena_bytes, slot_bytes)
            self._slots = self._slot_table(self.arena.slots)
            self._changed(self)
        if self.arena.slot_bytes != slot_bytes:
            raise RequestRefused(f"slots of this arena have {self.arena.slot_bytes} bytes, not {slot_bytes}")
        return self.arena

    def reserve(self, owner: Owner, keys: Sequence[BlockKey], tenant: Tenant = NO_TENANT) -> Reservation:
        """Slots for the owner to write; the blocks are the tenant's."""
        reservation = self._slots.reserve(keys, owner, tenant, self._clock())
        if self.crowding:
            self._changed(CROWDED)
        return reservation

    @property
    def crowding(self) -> int:
        """How many blocks must go to reach the low watermark, once the high one is passed; 0 before."""
        return self._slots.crowding

    @property
    def excess(self) -> int:
        """How many blocks there are beyond the low watermark."""
        return self._slots.excess

    def make_room(self, blocks: int) -> int:
        """Evict up to so many blocks for nobody in particular; how many."""
        return self._slots.evict(blocks)

    def commit(self, owner: Owner, keys: Sequence[BlockKey], checksums: Sequence[int]) -> int:
        """The owner's slots hold whole blocks; how many were its own. Raises `RequestRefused`."""
        if len(keys) != len(checksums):
            raise RequestRefused(f"{len(keys)} keys with {len(checksums)} checksums")
        slots = self._commit(owner, keys, checksums)
        self._slots.unpin(slots.values())
        return len(slots)

    def commit_and_gather(
        self, owner: Owner, handoff_id: str, keys: Sequence[BlockKey], checksums: Sequence[int]
    ) -> list[BlockKey]:
        """`commit`, and `gather` what was the owner's own; which blocks these were."""
        slots = self._commit(owner, keys, checksums)
        self._owners[owner].gather(handoff_id, list(slots.values()), self._clock())
        return list(slots)

    def abandon(self, owner: Owner, keys: Sequence[BlockKey]) -> int:
        """The owner's slots will not be written; how many were its own."""
        abandoned = self._slots.abandon(keys, owner)
        self._lost(abandoned)
        return len(abandoned)

    def distrust(self, keys: Sequence[BlockKey], found: ChecksumPlace = "load") -> int:
        """Forget blocks that were found corrupt; how many were here."""
        distrusted = sum(self._slots.distrust(key) for key in keys)
        self.counters.checksum_failures[found] += distrusted
        return distrusted

    # Pins

    def pin(self, owner: Owner, keys: Sequence[BlockKey]) -> list[PinnedBlock]:
        """Pin the longest readable prefix for the owner."""
        slots = self._slots.pin(keys)
        self._owners[owner].add(keys, slots, self._clock())
        return list(map(PinnedBlock, slots, self._slots.checksums(slots)))

    def unpin(self, owner: Owner, keys: Sequence[BlockKey]) -> int:
        """Drop the owner's oldest pin of each key; how many it had."""
        slots = self._owners[owner].take(keys)
        self._slots.unpin(slots)
        return len(slots)

    def gather(self, owner: Owner, handoff_id: str, keys: Iterable[BlockKey]) -> list[BlockKey]:
        """Pin every readable block for the owner, until `release_handoff`; which they were."""
        present = self._slots.pin_present(keys)
        self._owners[owner].gather(handoff_id, list(present.values()), self._clock())
        return list(present)

    def pass_on(self, owner: Owner, other: Owner, handoff_id: str) -> None:
        """What `gather` pinned for the one owner, under the name "", stays pinned for the other, under this name."""
        slots = self._owners[owner].release("") or ()
        self._owners[other].gather(handoff_id, slots, self._clock())

    def release_handoff(self, owner: Owner, handoff_id: str) -> int:
        """Drop the pins `gather` took; how many there were. Nobody else will come for the hand-off either, unless
        somebody waits for it already: not even when it is announced later, as by an engine that was slower than the
        abort of its leg. Hand-offs that were gathered from another store are not announced here.
        """
        slots = self._owners[owner].release(handoff_id)
        if slots is None or self._handoffs.find(handoff_id) is not None:
            self._apply(self._handoffs.collect(handoff_id, self._clock()))
        self._slots.unpin(slots or ())
        return len(slots or ())

    # Hand-offs

    def announce(self, owner: Owner, handoff_id: str, keys: Sequence[BlockKey]) -> None:
        """A producer names its blocks. Raises `RequestRefused`."""
        held = self._slots.pin_present(keys)
        try:
            plan = self._handoffs.announce(handoff_id, owner, keys, held, self._clock())
        except RequestRefused:
            self._slots.unpin(held.values())
            raise
        self._apply(plan)

    def conclude(self, owner: Owner, handoff_id: str) -> None:
        """The producer commits nothing more; a hand-off it never announced fails."""
        self._apply(self._handoffs.never_announced(handoff_id, owner, self._clock()))
        self._apply(self._handoffs.conclude(handoff_id, self._slots.is_being_written))

    def expire(self) -> None:
        """Drop hand-offs past their time; to be called now and then."""
        self._apply(self._handoffs.expire(self._clock()))
        if self.crowding:  # all that could go was pinned when the high watermark was passed
            self._changed(CROWDED)

    def join(self, handoff_id: str) -> None:
        """Somebody waits for a hand-off. Must be answered by `leave`."""
        self._handoffs.join(handoff_id)

    def leave(self, handoff_id: str) -> None:
        """Somebody waits no more: the hand-off is collected unless others wait."""
        self._handoffs.leave(handoff_id)
        self._apply(self._handoffs.collect(handoff_id, self._clock()))

    def find(self, handoff_id: str) -> HandoffView | None:
        """The hand-off, when it was announced."""
        return self._handoffs.find(handoff_id)

    def absent(self, keys: Sequence[BlockKey]) -> list[BlockKey]:
        """Those of the blocks that are not in the arena, and that nobody is writing into it."""
        return self._slots.absent(keys)

    def is_being_written(self, key: BlockKey) -> bool:
        """Whether somebody is writing the block."""
        return self._slots.is_being_written(key)

    def count_pulled(self, blocks: int, via: Medium) -> None:
        """Blocks came over the network."""
        self.counters.moved("pulled", via, blocks, blocks * self._slot_bytes)

    # Names

    def label(self, keys: Sequence[BlockKey], labels: Sequence[int]) -> int:
        """Keep these names with the blocks; how many were here and had none. Raises `RequestRefused`."""
        if len(keys) != len(labels):
            raise RequestRefused(f"{len(keys)} keys with {len(labels)} labels")
        named = zip(keys, labels, strict=True)
        return sum(self.is_readable(key) and self._names.give(key, label) for key, label in named)

    def labelled(self, labels: Sequence[int]) -> list[BlockKey]:
        """The blocks with these names, up to the first that cannot be read."""
        return self._names.keys(labels)

    def label_of(self, key: BlockKey) -> int | None:
        """The name kept with the block, if there is one."""
        return self._names.of(key)

    # Observation

    def follow(self, follower: Follower) -> None:
        """Tell `follower` of every block that becomes readable or ceases to be, until `unfollow`."""
        self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        """Tell it no more."""
        self._followers.remove(follower)

    def readable(self) -> list[BlockKey]:
        """Every block that can be read."""
        return self._slots.readable()

    def is_readable(self, key: BlockKey) -> bool:
        """Whether the block can be read."""
        return self._slots.is_readable(key)

    def check(self) -> None:
        """Assert the invariants: for tests."""
        self._slots.check()
        self._handoffs.check()
        self._names.check()
        assert self._names.named() <= set(self.readable())
        self._owners.check()
        assert self._slots.statistics().pins == self._owners.pins + self._handoffs.pins + self._moving

    def close(self) -> None:
        """Give up the arena."""
        if self.arena is not None:
            self.arena.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.epoch} {self._slots!r} {self._handoffs!r} owners={len(self._owners)}>"

    @property
    def _slot_bytes(self) -> int:
        return 0 if self.arena is None else self.arena.slot_bytes

    def _slot_table(self, slots: int) -> SlotTable:
        settings = self._settings
        low = int(slots * settings.low_watermark)
        shares = TenantShares(low, policy_maker(settings.eviction, slots), settings.tenant_weights)
        return SlotTable(slots, shares, Watermarks(low, int(slots * settings.high_watermark)), self._tell)

    def _tell(self, keys: Iterable[BlockKey], readable: bool) -> None:
        for key in keys if self._followers or not readable else ():
            if not readable:
                self._names.forget(key)
            for follower in self._followers:
                follower(key, readable)

    def _commit(self, owner: Owner, keys: Sequence[BlockKey], checksums: Sequence[int]) -> dict[BlockKey, int]:
        """The slots of the owner's own, pinned once for the caller."""
        slots = self._slots.commit(keys, checksums, owner)
        self._apply(self._handoffs.committed(slots))
        self._changed(*slots)
        return slots

    def _lost(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            self._apply(self._handoffs.lost(key))
            self._changed(key)

    def _apply(self, plan: HandoffPlan) -> None:
        if plan.pin:
            self._slots.pin_again(plan.pin)
        if plan.unpin:
            self._slots.unpin(plan.unpin)
        self._changed(*plan.changed)
