"""The books as people look at them: what is in the slots, who holds what, and for how long.

Looking takes no pin and counts as no use.
"""

from dataclasses import dataclass

from kvtransfer.errors import RequestRefused
from kvtransfer.inspection import Drop, Dropped, ListSlots, Oldest, SlotLine, SlotPage
from kvtransfer.owners import Tenure
from kvtransfer.seal import Seal
from kvtransfer.slot_index import READABLE
from kvtransfer.slot_records import Slot, SlotStatistics
from kvtransfer.states import SlotState
from kvtransfer.tiered_books import TieredBooks
from kvtransfer.transport import BlockKey


@dataclass(frozen=True, slots=True)
class SlotContent:
    """A readable block in its slot; `since_s` tells it from the same block in the same slot at another time."""

    slot: int
    key: BlockKey
    checksum: int
    since_s: float


PAGE_SLOTS = 1024
"""How many slots one request sees, free ones included."""


class InspectedBooks(TieredBooks):
    """Costs time in proportion to the slots that are looked at."""

    _seal: Seal | None = None

    # How blocks are verified

    @property
    def seal(self) -> Seal:
        """What the first engine said that said it."""
        return self._seal or Seal()

    def seal_with(self, seal: Seal) -> None:
        """An engine says how it makes checksums. Raises `RequestRefused` when that does not fit into a slot."""
        if not seal.fits(self._slot_bytes):
            raise RequestRefused(f"slots of {self._slot_bytes} bytes cannot bear {seal}")
        self._seal = self._seal or seal

    # Who holds what

    def slot_statistics(self) -> SlotStatistics:
        """Slots by state."""
        return self._slots.statistics()

    @property
    def open_handoffs(self) -> int:
        """Hand-offs that are not collected yet."""
        return self._handoffs.open_count

    def oldest_pin(self) -> Oldest | None:
        """Of the pins of owners and hand-offs. Those of blocks that are being copied end with the copy."""
        held = [one for one in (self._owners.oldest_pin, self._handoffs.oldest_pin) if one is not None]
        return self._oldest(min(held)) if held else None

    def oldest_writing(self) -> Oldest | None:
        """The slot that has been written for the longest."""
        writing = self._slots.oldest_writing()
        return None if writing is None else self._oldest(Tenure(writing.since_s, self._owners.name(writing.owner)))

    # What is in the slots

    def page(self, asked: ListSlots) -> SlotPage:
        """Those of the next slots that are not free."""
        slots = self.window(asked.first_slot, PAGE_SLOTS)
        seen = ((index, self._slots.look(index)) for index in slots)
        lines = [self._line(index, slot) for index, slot in seen if slot.state is not SlotState.FREE]
        return SlotPage(asked.id, self._slot_count, self._slot_bytes, lines, self.after(slots))

    def window(self, first_slot: int, most: int) -> range:
        """The next slots."""
        return range(max(0, first_slot), min(self._slot_count, max(0, first_slot) + most))

    def after(self, slots: range) -> int | None:
        """The slot after these; None when there is none."""
        return slots.stop if slots and slots.stop < self._slot_count else None

    def readable_slots(self, slots: range) -> list[SlotContent]:
        """Those of these slots whose blocks can be read."""
        seen = ((index, self._slots.look(index)) for index in slots)
        return [_content(index, slot) for index, slot in seen if slot.state in READABLE]

    def still_holds(self, content: SlotContent) -> bool:
        """Whether the slot holds that block ever since, and it can be read."""
        slot = self._slots.look(content.slot)
        return slot.state in READABLE and _content(content.slot, slot) == content

    def drop(self, asked: Drop) -> Dropped:
        """Forget blocks that nobody is using, on disk as well."""
        dropped = in_use = 0
        for key in dict.fromkeys(asked.keys):
            if self._slots.is_in_use(key):
                in_use += 1
            else:
                from_arena = self._slots.drop(key)
                from_disk = self.disk is not None and self.disk.drop(key)
                dropped += from_arena or from_disk
        return Dropped(asked.id, dropped, in_use)

    @property
    def _slot_count(self) -> int:
        return 0 if self.arena is None else self.arena.slots

    def _line(self, index: int, slot: Slot) -> SlotLine:
        age_s = max(0.0, self._clock() - slot.since_s)
        writer = "" if slot.owner is None else self._owners.name(slot.owner)
        return SlotLine(index, slot.key, slot.state.value, age_s, slot.pins, self.label_of(slot.key), writer)

    def _oldest(self, tenure: Tenure) -> Oldest:
        return Oldest(tenure.owner, max(0.0, self._clock() - tenure.since_s))


def _content(index: int, slot: Slot) -> SlotContent:
    return SlotContent(index, slot.key, slot.checksum, slot.since_s)
