"""The node's KV store: its books, and who waits for them to change. It is the `BlockSource` of its transport.

Nothing here waits except for blocks, and every such wait has a deadline. It knows no socket.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from itertools import takewhile

from kvtransfer.arena import Arena
from kvtransfer.books import CROWDED
from kvtransfer.errors import NeverAnnounced
from kvtransfer.handoffs import HandoffView
from kvtransfer.inspected_books import InspectedBooks
from kvtransfer.settings import StoreSettings
from kvtransfer.signals import Signals
from kvtransfer.tiered_books import LEFT
from kvtransfer.transport import BlockKey, CommittedBlocks, HandoffState, Medium


class Store(InspectedBooks):
    """One life of a store."""

    def __init__(self, settings: StoreSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._signals = Signals()
        super().__init__(settings, secrets.token_hex(8), clock, self._signals.notify)
        self._offerer = self.open_owner("offers to other stores")
        self._offers = 0

    async def until_attached(self) -> Arena:
        """The arena, as soon as somebody has decided its slot size."""
        while self.arena is None:
            await self._signals.changed(self)
        return self.arena

    async def until_crowded(self) -> None:
        """Return when the next reservation has left the store beyond its high watermark."""
        await self._signals.changed(CROWDED)

    async def until_left(self) -> bool:
        """Return when a block has left for the disk; False at once when none is on its way."""
        if self._leaving:
            await self._signals.changed(LEFT)
            return True
        return False

    async def until(self, handoff_id: str, is_enough: Callable[[HandoffView], bool]) -> HandoffView:
        """The announced hand-off as soon as it is enough. The caller has joined it, and brings the deadline."""
        while (view := self._handoffs.find(handoff_id)) is None or not is_enough(view):
            await self._signals.changed(handoff_id)
        return view

    async def until_written(self, key: BlockKey) -> None:
        """Return when nobody is writing the block. The caller brings the deadline."""
        while self._slots.is_being_written(key):
            await self._signals.changed(key)

    # As the source of pulls

    async def announced(self, handoff_id: str, deadline_s: float) -> Sequence[BlockKey]:
        """See `BlockSource`. A wait in vain means that nobody will come for the hand-off."""
        self._handoffs.join(handoff_id)
        try:
            view = self._handoffs.find(handoff_id)
            if view is None:
                async with asyncio.timeout(deadline_s):
                    view = await self.until(handoff_id, lambda _: True)
        except BaseException:
            self.leave(handoff_id)
            raise
        if view.state is HandoffState.FAILED and not view.keys:
            self.leave(handoff_id)
            raise NeverAnnounced(view.reason)
        return view.keys

    def offer(self, labels: Sequence[int]) -> str:
        """See `BlockSource`."""
        self._offers += 1
        handoff_id = f"offer {self._offers} of {self.epoch}"
        keys = list(takewhile(self.is_coming, self.labelled(labels)))
        self.announce(self._offerer, handoff_id, keys)
        self.conclude(self._offerer, handoff_id)
        return handoff_id

    def ready(self, wanted: Sequence[BlockKey]) -> CommittedBlocks:
        """See `BlockSource`."""
        slots = self._slots.pin(wanted)
        self._moving += len(slots)
        return CommittedBlocks(slots, self._slots.checksums(slots))

    async def committed(self, handoff_id: str, wanted: Sequence[BlockKey]) -> CommittedBlocks:
        """See `BlockSource`."""
        while not (blocks := self.ready(wanted)).slots:
            if not wanted or not self._handoffs.will_come(handoff_id, wanted[0]):
                break
            await self._signals.changed(handoff_id)
        return blocks

    def release(self, slots: Sequence[int]) -> None:
        """See `BlockSource`."""
        self._moving -= len(slots)
        self._slots.unpin(slots)

    def count_pushed(self, blocks: int, via: Medium) -> None:
        """Blocks went over the network."""
        self.counters.moved("pushed", via, blocks, blocks * self._slot_bytes)

    def count_refused(self) -> None:
        """Somebody who would be another store was not let in."""
        self.counters.refused_connections += 1
