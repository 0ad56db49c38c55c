"""What one gateway has yet to hear about the blocks on a worker's device. Pure.

Invariant: snapshot plus changes sent, in order, is what the device holds. Changes that wait are netted per key and
bounded: beyond `max_pending_keys` they are dropped for a fresh snapshot, so a gateway that cannot keep up costs
a constant.
"""

from collections.abc import Callable, Iterable, Sequence

from cluster.dataplane.frames import KvEvents

MAX_PENDING_KEYS = 65_536


class KvFeed:
    """The events of one connection. `snapshot` gives all keys on the device now."""

    def __init__(self, snapshot: Callable[[], Sequence[int]], max_pending_keys: int = MAX_PENDING_KEYS) -> None:
        self._snapshot = snapshot
        self._max_pending_keys = max_pending_keys
        self._needs_snapshot = True
        self._present: dict[int, bool] = {}
        self._sequence = 0

    def change(self, stored: Iterable[int], removed: Iterable[int]) -> None:
        """These keys appeared and then those disappeared; a key alternates between the two over time."""
        if self._needs_snapshot:
            return
        for key in stored:
            self._note(key, True)
        for key in removed:
            self._note(key, False)
        if len(self._present) > self._max_pending_keys:
            self._needs_snapshot = True
            self._present.clear()

    def _note(self, key: int, present: bool) -> None:
        if self._present.get(key, present) != present:
            del self._present[key]
        else:
            self._present[key] = present

    def take(self) -> KvEvents | None:
        """The next frame, or None when the gateway knows everything."""
        if self._needs_snapshot:
            self._needs_snapshot = False
            self._sequence = 0
            return KvEvents(sequence=0, snapshot=True, stored=list(self._snapshot()), removed=[])
        if not self._present:
            return None
        self._sequence += 1
        stored = [key for key, present in self._present.items() if present]
        removed = [key for key, present in self._present.items() if not present]
        self._present.clear()
        return KvEvents(sequence=self._sequence, snapshot=False, stored=stored, removed=removed)
