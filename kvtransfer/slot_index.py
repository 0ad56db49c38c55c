"""Which block is in which slot, and in which state each slot is. Pure.

A prompt's blocks come and go by the hundred, so what is known of slots lies in columns, one list each, and not in a
record for each slot. Looking changes nothing; what may follow what is in `kvtransfer.states`, and `_move` alone assigns
a state.
"""

from collections.abc import Iterable, Sequence

from kvtransfer.slot_records import Origin, Owner, Slot, Writing
from kvtransfer.states import AFTER, SlotEvent, SlotState
from kvtransfer.tenant import NO_TENANT
from kvtransfer.transport import BlockKey

READABLE = (SlotState.COMMITTED, SlotState.PINNED)

NOBODY = Origin(0, NO_TENANT, 0.0)


class SlotIndex:
    """The columns of all slots, by number, and the slots by key. Its owner is the table that extends it."""

    def __init__(self, slots: int) -> None:
        self._states = [SlotState.FREE] * slots
        self._keys: list[BlockKey] = [b""] * slots
        self._origins = [NOBODY] * slots
        self._checksums = [0] * slots
        self._pin_counts = [0] * slots
        self._free = list(range(slots - 1, -1, -1))
        self._by_key: dict[BlockKey, int] = {}
        self._written_by: dict[Owner, dict[BlockKey, int]] = {}

    def is_in_use(self, key: BlockKey) -> bool:
        """Whether the block is pinned or being written."""
        slot = self._by_key.get(key)
        return slot is not None and self._states[slot] is not SlotState.COMMITTED

    def is_readable(self, key: BlockKey) -> bool:
        """Whether the block can be pinned."""
        slot = self._by_key.get(key)
        return slot is not None and self._states[slot] in READABLE

    def readable(self) -> list[BlockKey]:
        """Every block that can be pinned."""
        states = self._states
        return [key for key, slot in self._by_key.items() if states[slot] in READABLE]

    def is_being_written(self, key: BlockKey) -> bool:
        """Whether somebody reserved the block and has neither committed nor abandoned it."""
        slot = self._by_key.get(key)
        return slot is not None and self._states[slot] is SlotState.WRITING

    def look(self, slot: int) -> Slot:
        """What is known of a slot."""
        state, origin = self._states[slot], self._origins[slot]
        return Slot(
            state=state,
            key=self._keys[slot],
            owner=origin.owner if state is SlotState.WRITING else None,
            checksum=self._checksums[slot],
            pins=self._pin_counts[slot],
            tenant=origin.tenant,
            since_s=origin.since_s,
        )

    def checksums(self, slots: Iterable[int]) -> list[int]:
        """The checksums committed with the blocks in these slots."""
        return list(map(self._checksums.__getitem__, slots))

    def oldest_writing(self) -> Writing | None:
        """Who has been writing a block for the longest."""
        firsts = [next(iter(written.values())) for written in self._written_by.values() if written]
        oldest = min((self._origins[slot] for slot in firsts), key=lambda origin: origin.since_s, default=None)
        return None if oldest is None else Writing(oldest.owner, oldest.since_s)

    def _move(self, slots: Iterable[int], event: SlotEvent) -> None:
        """The only place that assigns the state of slots."""
        states, after = self._states, AFTER[event]
        for slot in slots:
            states[slot] = after[states[slot]]

    def absent(self, keys: Sequence[BlockKey]) -> list[BlockKey]:
        """Those that can neither be read nor are being written, each once."""
        by_key = self._by_key
        return [key for key in dict.fromkeys(keys) if key not in by_key]
