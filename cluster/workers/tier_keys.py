"""The router keys of one tier, counted by the blocks that have them. Pure.

Invariant: a key is held exactly while at least one block with that key was added and not removed; what `take` returned,
in order, adds up to the keys held.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class KvChange:
    """Keys that appeared and keys that disappeared; a key that did both is in neither."""

    stored: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stored or self.removed)


class TierKeys:
    """Owns the counts, and what has changed since the last `take`."""

    def __init__(self) -> None:
        self.holders: dict[int, int] = {}
        self._before: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self.holders)

    def __contains__(self, key: int) -> bool:
        return key in self.holders

    def add(self, key: int) -> None:
        """A block with this key is here."""
        holders = self.holders.get(key, 0)
        if not holders:
            self._before.setdefault(key, False)
        self.holders[key] = holders + 1

    def remove(self, key: int) -> None:
        """One of them is gone."""
        holders = self.holders[key] - 1
        if holders:
            self.holders[key] = holders
            return
        self._before.setdefault(key, True)
        del self.holders[key]

    def take(self) -> KvChange:
        """The net change since the last call."""
        before, self._before = self._before, {}
        change = KvChange()
        for key, was_held in before.items():
            is_held = key in self.holders
            if is_held and not was_held:
                change.stored.append(key)
            elif was_held and not is_held:
                change.removed.append(key)
        return change
