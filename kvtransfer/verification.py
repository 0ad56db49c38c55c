"""Looks whether committed blocks still are what was committed, some at a time, in another thread.

No pin is taken: nothing that is looked at counts as used, or is kept. A slot whose block goes meanwhile is not judged.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvtransfer.arena import Arena
from kvtransfer.inspected_books import InspectedBooks, SlotContent
from kvtransfer.inspection import Verified, Verify
from kvtransfer.protocol import Failed, Reply
from kvtransfer.seal import Seal
from kvtransfer.tasks import TaskSet

VERIFY_BYTES = 64 * 1024 * 1024
"""How much one request looks at: some ten milliseconds of a core."""

VERIFY_SLOTS = 4096
"""How many slots one request looks at, empty ones included."""


MOST_WAITING = 16


@dataclass(frozen=True, slots=True)
class _Look:
    """What the other thread needs."""

    arena: Arena
    seal: Seal
    contents: Sequence[SlotContent]

    def unsound(self) -> list[SlotContent]:
        arena, seal = self.arena, self.seal
        return [each for each in self.contents if not seal.is_sound(arena.slot(each.slot), each.checksum)]


class Verifications:
    """Of one store, one at a time."""

    def __init__(self, store: InspectedBooks) -> None:
        self._store = store
        self._tasks = TaskSet()
        self._turn = asyncio.Lock()

    def spawn(self, request: Verify, reply: Callable[[Reply], None]) -> "asyncio.Task[None]":
        """Look at the next slots, distrust what is corrupt, and reply, unless it is cancelled before."""
        return self._tasks.spawn(self._answer(request, reply))

    async def close(self) -> None:
        """Cancel what is under way."""
        await self._tasks.close()

    async def _answer(self, request: Verify, reply: Callable[[Reply], None]) -> None:
        if len(self._tasks) > MOST_WAITING:
            reply(Failed(request.id, f"{MOST_WAITING} verifications are under way"))
            return
        async with self._turn:
            reply(await self._verify(request))

    async def _verify(self, request: Verify) -> Verified:
        store, arena = self._store, self._store.arena
        if arena is None:
            return Verified(request.id, 0, [], None)
        slots = store.window(request.first_slot, max(1, min(VERIFY_SLOTS, VERIFY_BYTES // arena.slot_bytes)))
        look = _Look(arena, store.seal, store.readable_slots(slots))
        unsound = await asyncio.to_thread(look.unsound)
        corrupt = [content.key for content in unsound if store.still_holds(content)]
        store.distrust(corrupt, "verify")
        return Verified(request.id, len(look.contents), corrupt, store.after(slots))
