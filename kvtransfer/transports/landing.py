"""Where arriving blocks land: which slot each taken block of each pull goes to. Shared by the loop and the lanes.

Invariant: a slot is written only by a lane that has begun its block and not finished it, and a pull that was withdrawn
gives no lane anything more. So once `withdraw` says that nothing is landing, the pull's slots are its owner's alone.
"""

import threading
import time
from collections.abc import Mapping, Sequence

from kvtransfer.errors import FramingError


class LandingField:
    """One for each control connection of a destination. Every method may be called from any thread."""

    def __init__(self) -> None:
        self.expected_at = 0.0  # when blocks were last taken, in monotonic time
        self._lock = threading.Lock()
        self._slots: dict[int, dict[int, memoryview]] = {}
        self._landing: dict[int, int] = {}

    def expect(self, pull: int, slots: Mapping[int, memoryview]) -> None:
        """The pull has taken these blocks, by position."""
        self.expected_at = time.monotonic()
        with self._lock:
            self._slots.setdefault(pull, {}).update(slots)

    def begin(self, pull: int, positions: Sequence[int], block_bytes: int) -> list[memoryview] | None:
        """The slots to write, each block once; `finish` must follow. None when the pull is over.

        Raises `FramingError` for blocks that were not taken or are of another size.
        """
        with self._lock:
            expected = self._slots.get(pull)
            if expected is None:
                return None
            for position in set(positions) - expected.keys():
                raise FramingError(f"a block at position {position} was not asked for")
            if len(set(positions)) < len(positions):
                raise FramingError("a block comes twice")
            slots = [expected[position] for position in positions]
            for slot_bytes in set(map(len, slots)) - {block_bytes}:
                raise FramingError(f"a payload of {block_bytes} bytes for a slot of {slot_bytes}")
            for position in positions:
                del expected[position]
            self._landing[pull] = self._landing.get(pull, 0) + 1
            return slots

    def finish(self, pull: int) -> None:
        """A lane writes no more into the slots that one `begin` gave it."""
        with self._lock:
            self._landing[pull] -= 1
            if not self._landing[pull]:
                del self._landing[pull]

    def withdraw(self, pull: int) -> bool:
        """The pull is over. True while some lane still writes for it."""
        with self._lock:
            self._slots.pop(pull, None)
            return pull in self._landing

    @property
    def is_waiting(self) -> bool:
        """Whether blocks were taken that no lane has begun to bring."""
        with self._lock:
            return any(self._slots.values())

    @property
    def landing(self) -> int:
        """How many lanes write right now."""
        with self._lock:
            return sum(self._landing.values())

    def __repr__(self) -> str:
        return f"<LandingField pulls={len(self._slots)} landing={self.landing}>"
