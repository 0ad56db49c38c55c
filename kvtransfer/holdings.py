"""The pins of one owner, by the request that took them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvtransfer.transport import BlockKey


@dataclass(slots=True)
class Holdings:
    """Slots it has pinned, one entry for each pin."""

    by_key: dict[BlockKey, list[int]] = field(default_factory=dict)
    by_handoff: dict[str, list[int]] = field(default_factory=dict)

    def add(self, key: BlockKey, slot: int) -> None:
        """A pin of this block."""
        self.by_key.setdefault(key, []).append(slot)

    def take(self, keys: Iterable[BlockKey]) -> list[int]:
        """Give up the oldest pin of each key that has one."""
        slots = []
        for key in keys:
            if key in self.by_key:
                slots.append(self.by_key[key].pop(0))
                if not self.by_key[key]:
                    del self.by_key[key]
        return slots

    def slots(self) -> list[int]:
        """All of them."""
        held = [*self.by_key.values(), *self.by_handoff.values()]
        return [slot for slots in held for slot in slots]
