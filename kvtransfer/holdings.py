"""The pins of one owner, by the request that took them. Pure: time is an argument.

Invariant (`check`): `oldest_s` is when the first taken of the pins it still has was taken.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from kvtransfer.transport import BlockKey


class Holdings:
    """Slots that the owner called `name` has pinned, one entry for each pin. Pins that go together have one number."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._by_key: dict[BlockKey, list[tuple[int, int]]] = {}  # numbers and slots, oldest first
        self._by_handoff: dict[str, tuple[int, list[int]]] = {}
        self._since_s: dict[int, float] = {}  # by number, oldest first
        self._numbers: Iterator[int] = itertools.count()

    def add(self, keys: Iterable[BlockKey], slots: Sequence[int], now: float) -> None:
        """A pin of each of the first of these blocks, as far as there are slots."""
        for slot, key in zip(slots, keys, strict=False):
            number = next(self._numbers)
            self._since_s[number] = now
            self._by_key.setdefault(key, []).append((number, slot))

    def take(self, keys: Iterable[BlockKey]) -> list[int]:
        """Give up the oldest pin of each key that has one."""
        slots = []
        for key in keys:
            pins = self._by_key.get(key)
            if pins is not None:
                number, slot = pins.pop(0)
                del self._since_s[number]
                slots.append(slot)
                if not pins:
                    del self._by_key[key]
        return slots

    def gather(self, handoff_id: str, slots: Sequence[int], now: float) -> None:
        """More pins for a hand-off."""
        if handoff_id not in self._by_handoff:
            self._by_handoff[handoff_id] = (next(self._numbers), [])
        number, gathered = self._by_handoff[handoff_id]
        gathered.extend(slots)
        if gathered:
            self._since_s.setdefault(number, now)

    def release(self, handoff_id: str) -> list[int] | None:
        """Give up a hand-off's pins; None when nothing was gathered for it."""
        number, slots = self._by_handoff.pop(handoff_id, (None, None))
        if number is not None:
            self._since_s.pop(number, None)
        return slots

    def slots(self) -> list[int]:
        """All of them."""
        single = [slot for pins in self._by_key.values() for _, slot in pins]
        return single + [slot for _, slots in self._by_handoff.values() for slot in slots]

    @property
    def oldest_s(self) -> float | None:
        """When the oldest pin was taken; None without any."""
        return next(iter(self._since_s.values()), None)

    def check(self) -> None:
        """Assert the invariant: for tests."""
        numbers = {number for pins in self._by_key.values() for number, _ in pins}
        numbers |= {number for number, slots in self._by_handoff.values() if slots}
        assert self._since_s.keys() == numbers
        assert list(self._since_s.values()) == sorted(self._since_s.values())
