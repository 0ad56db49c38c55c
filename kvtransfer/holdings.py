"""The pins of one owner, by the request that took them. Pure: time is an argument.

Invariant (`check`): `oldest_s` is when the first taken of the pins it still has was taken.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvtransfer.transport import BlockKey


@dataclass(slots=True)
class _Taking:
    """Pins that go together."""

    number: int
    slots: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Holdings:
    """Slots that the owner called `name` has pinned, one entry for each pin."""

    name: str
    _by_key: dict[BlockKey, list[_Taking]] = field(default_factory=dict)
    _by_handoff: dict[str, _Taking] = field(default_factory=dict)
    _since_s: dict[int, float] = field(default_factory=dict)  # by number, oldest first
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def add(self, key: BlockKey, slot: int, now: float) -> None:
        """A pin of this block."""
        taking = _Taking(next(self._numbers))
        self._more(taking, [slot], now)
        self._by_key.setdefault(key, []).append(taking)

    def take(self, keys: Iterable[BlockKey]) -> list[int]:
        """Give up the oldest pin of each key that has one."""
        slots = []
        for key in keys:
            if key in self._by_key:
                slots += self._give_up(self._by_key[key].pop(0))
                if not self._by_key[key]:
                    del self._by_key[key]
        return slots

    def gather(self, handoff_id: str, slots: Sequence[int], now: float) -> None:
        """More pins for a hand-off."""
        if handoff_id not in self._by_handoff:
            self._by_handoff[handoff_id] = _Taking(next(self._numbers))
        self._more(self._by_handoff[handoff_id], slots, now)

    def release(self, handoff_id: str) -> list[int] | None:
        """Give up a hand-off's pins; None when nothing was gathered for it."""
        taking = self._by_handoff.pop(handoff_id, None)
        return None if taking is None else self._give_up(taking)

    def slots(self) -> list[int]:
        """All of them."""
        return [slot for taking in self._takings() for slot in taking.slots]

    @property
    def oldest_s(self) -> float | None:
        """When the oldest pin was taken; None without any."""
        return next(iter(self._since_s.values()), None)

    def check(self) -> None:
        """Assert the invariant: for tests."""
        assert self._since_s.keys() == {taking.number for taking in self._takings() if taking.slots}
        assert list(self._since_s.values()) == sorted(self._since_s.values())

    def _takings(self) -> list[_Taking]:
        single = [taking for takings in self._by_key.values() for taking in takings]
        return [*single, *self._by_handoff.values()]

    def _more(self, taking: _Taking, slots: Sequence[int], now: float) -> None:
        taking.slots.extend(slots)
        if taking.slots:
            self._since_s.setdefault(taking.number, now)

    def _give_up(self, taking: _Taking) -> list[int]:
        self._since_s.pop(taking.number, None)
        return taking.slots
