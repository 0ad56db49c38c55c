"""Which block is in which slot, and in which state each slot is. Pure.

Looking changes nothing; what may follow what is in `kvtransfer.states`, and `_move` alone assigns a state.
"""

from collections.abc import Iterable, Sequence

from kvtransfer.slot_records import Owner, Slot, Writing
from kvtransfer.states import AFTER, SlotEvent, SlotState
from kvtransfer.transport import BlockKey

READABLE = (SlotState.COMMITTED, SlotState.PINNED)


class SlotIndex:
    """The records of all slots, by number and by key. Its owner is the table that extends it."""

    def __init__(self, slots: int) -> None:
        self._slots = [Slot() for _ in range(slots)]
        self._free = list(range(slots - 1, -1, -1))
        self._by_key: dict[BlockKey, int] = {}
        self._written_by: dict[Owner, dict[BlockKey, int]] = {}

    def is_in_use(self, key: BlockKey) -> bool:
        """Whether the block is pinned or being written."""
        slot = self._by_key.get(key)
        return slot is not None and self._slots[slot].state is not SlotState.COMMITTED

    def is_readable(self, key: BlockKey) -> bool:
        """Whether the block can be pinned."""
        slot = self._by_key.get(key)
        return slot is not None and self._slots[slot].state in READABLE

    def readable(self) -> list[BlockKey]:
        """Every block that can be pinned."""
        return [key for key, slot in self._by_key.items() if self._slots[slot].state in READABLE]

    def is_being_written(self, key: BlockKey) -> bool:
        """Whether somebody reserved the block and has neither committed nor abandoned it."""
        slot = self._by_key.get(key)
        return slot is not None and self._slots[slot].state is SlotState.WRITING

    def look(self, slot: int) -> Slot:
        """What is known of a slot, not to be changed."""
        return self._slots[slot]

    def checksums(self, slots: Iterable[int]) -> list[int]:
        """The checksums committed with the blocks in these slots."""
        return [self._slots[slot].checksum for slot in slots]

    def oldest_writing(self) -> Writing | None:
        """Who has been writing a block for the longest."""
        firsts = [next(iter(written.values())) for written in self._written_by.values() if written]
        if not firsts:
            return None
        entry = min((self._slots[slot] for slot in firsts), key=lambda entry: entry.since_s)
        assert entry.owner is not None
        return Writing(entry.owner, entry.since_s)

    def _move(self, slots: Iterable[int], event: SlotEvent) -> list[Slot]:
        """The only place that assigns the state of slots; their records."""
        after = AFTER[event]
        entries = [self._slots[slot] for slot in slots]
        for entry in entries:
            entry.state = after[entry.state]
        return entries

    def absent(self, keys: Sequence[BlockKey]) -> list[BlockKey]:
        """Those that can neither be read nor are being written, each once."""
        return [key for key in dict.fromkeys(keys) if key not in self._by_key]
