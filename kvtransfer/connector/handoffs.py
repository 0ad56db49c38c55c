"""The hand-offs this engine produces, from announcement to conclusion.

A hand-off is over when every leg that names it has ended, or when one of its blocks found no room; it is concluded
once none of its blocks is on its way, so that nobody is told "will not come" about a block about to be committed.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kvtransfer.connector.store_link import StoreLink
from kvtransfer.transport import BlockKey


@dataclass(slots=True)
class Handoff:
    """`legs` counts the engine's requests that name it (a request with n > 1 is several)."""

    keys: tuple[BlockKey, ...]
    legs: int = 1
    over: bool = False
    concluded: bool = False


class Handoffs:
    """All unfinished hand-offs of one engine, by id."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._handoffs: dict[str, Handoff] = {}

    def announce(self, handoff_id: str, keys: tuple[BlockKey, ...]) -> None:
        known = self._handoffs.get(handoff_id)
        if known is not None:
            known.legs += 1
            return
        self._handoffs[handoff_id] = Handoff(keys)
        self._link.announce(handoff_id, keys)

    def release(self, handoff_id: str) -> None:
        """One leg has ended."""
        handoff = self._handoffs[handoff_id]
        handoff.legs -= 1
        handoff.over = handoff.over or handoff.legs == 0

    def give_up(self, keys: Sequence[BlockKey], slots: Sequence[int | None]) -> None:
        """Some of `keys` got no slot for lack of room: the hand-offs they belong to cannot become complete.

        A block that is there already has no slot either; ending its hand-off early costs a recomputation, waiting in
        vain costs the deadline.
        """
        without = {key for key, slot in zip(keys, slots, strict=True) if slot is None}
        for handoff in self._handoffs.values():
            handoff.over = handoff.over or not without.isdisjoint(handoff.keys)

    def conclude_settled(self, in_flight: Container[BlockKey]) -> None:
        """Conclude what is over and has no block in flight; forget what also has no leg left."""
        for handoff_id, handoff in list(self._handoffs.items()):
            if handoff.over and not handoff.concluded and not any(key in in_flight for key in handoff.keys):
                self._link.conclude(handoff_id)
                handoff.concluded = True
            if handoff.concluded and handoff.legs == 0:
                del self._handoffs[handoff_id]

    def start_over(self) -> None:
        """The store is another one: announce again, and end at once, as earlier blocks are lost with the old one."""
        for handoff_id, handoff in self._handoffs.items():
            self._link.announce(handoff_id, handoff.keys)
            handoff.over, handoff.concluded = True, False
