"""The books as people look at them: who holds what, and for how long."""

from kvtransfer.inspection import Oldest
from kvtransfer.owners import Tenure
from kvtransfer.tiered_books import TieredBooks


class InspectedBooks(TieredBooks):
    """Looking takes no pin and counts as no use."""

    def oldest_pin(self) -> Oldest | None:
        """Of the pins of owners and hand-offs. Those of blocks that are being copied end with the copy."""
        held = [one for one in (self._owners.oldest_pin, self._handoffs.oldest_pin) if one is not None]
        return self._oldest(min(held)) if held else None

    def oldest_writing(self) -> Oldest | None:
        """The slot that has been written for the longest."""
        writing = self._slots.oldest_writing()
        return None if writing is None else self._oldest(Tenure(writing.since_s, self._owners.name(writing.owner)))

    def _oldest(self, tenure: Tenure) -> Oldest:
        return Oldest(tenure.owner, max(0.0, self._clock() - tenure.since_s))
