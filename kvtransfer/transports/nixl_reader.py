"""One peer's blocks by NIXL, as long as it works: the destination reads what is ready into its own slots."""

import asyncio
import ctypes
from collections.abc import Mapping

from kvtransfer.arena import Arena
from kvtransfer.transports.nixl import ArenaAccess, NixlAgent, NixlFault, Reading


class NixlReader:
    """Reads from one peer, one `Ready` after the other."""

    def __init__(self, agent: NixlAgent, address: str, stall_s: float) -> None:
        self._agent = agent
        self._address = address
        self._stall_s = stall_s
        self._access: ArenaAccess | None = None
        self._peer = ""
        self._turn = asyncio.Lock()
        self._is_broken = False
        self.read_blocks = 0

    def shown(self, access: ArenaAccess) -> None:
        """The peer lets us read."""
        self._access = access

    async def read(self, arena: Arena | None, slots: Mapping[int, memoryview], theirs: Mapping[int, int]) -> bool:
        """Fill the slots, by position, from the peer's. False: it cannot, and nothing is written into them any more.

        Cancelled, it gives up the transfer, waits until nothing is written any more, and raises.
        """
        async with self._turn:
            if self._is_broken or not slots:
                return not slots
            try:
                await self._read(arena, slots, theirs)
            except NixlFault as error:
                self._is_broken = True
                self._agent.say_once(self._address, str(error))
                return False
            self.read_blocks += len(slots)
            return True

    async def close(self) -> None:
        """Forget the peer."""
        if self._peer:
            await self._agent.part(self._peer)

    async def _read(self, arena: Arena | None, slots: Mapping[int, memoryview], theirs: Mapping[int, int]) -> None:
        access = self._access
        if access is None or arena is None:
            raise NixlFault("the peer has no NIXL")
        if any(not 0 <= slot < access.slots for slot in theirs.values()):
            raise NixlFault("the peer named a slot that it does not have")
        if not self._peer:
            self._peer = await self._agent.meet(access, arena)
        mine = [_address(slot) for slot in slots.values()]
        reading = Reading(
            self._peer,
            mine,
            [access.base + theirs[position] * access.slot_bytes for position in slots],
            access.slot_bytes,
            self._stall_s,
        )
        work = asyncio.ensure_future(self._agent.read(reading))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            reading.given_up.set()
            self._peer = ""  # the connection goes with the transfer; the next one meets the peer again
            await _quietly(work)
            raise


def _address(slot: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(slot))


async def _quietly(work: "asyncio.Future[None]") -> None:
    """Wait for its end, however it ends; it has been told to hurry."""
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            continue
    if not work.cancelled():
        work.exception()
