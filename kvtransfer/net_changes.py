"""What a reader has yet to hear about a set of keys that changes. Pure.

Invariant: what was taken, in order, adds up to the set as soon as nothing waits. Changes that wait are netted per key
and bounded: beyond the bound they are dropped for a fresh snapshot, so a reader that cannot keep up costs a constant.
A snapshot is taken in parts: the first replaces what the reader knew, the others add to it.
"""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_WAITING_KEYS = 65_536
MAX_TAKEN_KEYS = 16_384


@dataclass(frozen=True, slots=True)
class NetChange(Generic[K]):
    """With `snapshot` all that was known before is void. No key is in both lists."""

    snapshot: bool
    appeared: list[K]
    gone: list[K]


class NetChanges(Generic[K]):
    """For one reader. `snapshot` gives all keys of the set now."""

    def __init__(
        self,
        snapshot: Callable[[], Collection[K]],
        max_waiting_keys: int = MAX_WAITING_KEYS,
        max_taken_keys: int = MAX_TAKEN_KEYS,
    ) -> None:
        self._snapshot = snapshot
        self._max_waiting_keys = max_waiting_keys
        self._max_taken_keys = max_taken_keys
        self.start_over()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> bool:
        """Whether `take` has something to give."""
        return self._needs_snapshot or bool(self._waiting)

    def start_over(self) -> None:
        """The reader knows nothing."""
        self._needs_snapshot = True
        self._waiting: dict[K, bool] = {}
        self._bound = self._max_waiting_keys

    def note(self, key: K, present: bool) -> bool:
        """The key appeared or went; over time it alternates between the two. True when this undoes what waited."""
        if self._needs_snapshot:
            return False
        waiting = self._waiting
        if waiting.get(key, present) != present:
            del waiting[key]
            return True
        waiting[key] = present
        if len(waiting) > self._bound:
            self.start_over()
        return False

    def take(self) -> NetChange[K] | None:
        """The next part, of at most `max_taken_keys` keys; None when the reader knows everything."""
        if not self.waiting:
            return None
        snapshot, self._needs_snapshot = self._needs_snapshot, False
        if snapshot:
            self._waiting = dict.fromkeys(self._snapshot(), True)
            self._bound = len(self._waiting) + self._max_waiting_keys
        taken = self._pop()
        if not self._waiting:
            self._bound = self._max_waiting_keys
        appeared = [key for key, present in taken.items() if present]
        return NetChange(snapshot, appeared, [key for key, present in taken.items() if not present])

    def _pop(self) -> dict[K, bool]:
        if len(self._waiting) <= self._max_taken_keys:
            taken, self._waiting = self._waiting, {}
            return taken
        taken = dict(islice(self._waiting.items(), self._max_taken_keys))
        for key in taken:
            del self._waiting[key]
        return taken
