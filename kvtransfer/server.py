"""The store process's front: a Unix socket in the abstract namespace, so that nothing is left to clean up.

Owns the store, its transport and every task; `close` ends them all.
"""

import asyncio
import logging

from kvtransfer.connection import Reception, StoreConnection
from kvtransfer.disk.opening import open_disk
from kvtransfer.recalls import Recalls
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import Transport
from kvtransfer.verification import Verifications
from kvtransfer.waits import HandoffWaits

logger = logging.getLogger(__name__)

ACCEPT_TURNS = 3
"""Turns of the loop until a connection that it has accepted is known here: asyncio takes two."""

EVICTED_AT_ONCE = 256
"""Blocks that are evicted between two looks at the loop: about a millisecond."""

POPULATE_BYTES = 32 * 1024 * 1024
"""How much of the arena is made resident between two looks at the loop."""


class StoreServer:
    """Serves one store to the processes of this node and, through `transport`, to other nodes."""

    def __init__(self, settings: StoreSettings, secret: bytes, fingerprint: str, transport: Transport) -> None:
        self.store = Store(settings)
        self._settings = settings
        self._fingerprint = fingerprint
        self._transport = transport
        self._reception = Reception(
            settings=settings,
            secret=secret,
            fingerprint=fingerprint,
            address=lambda: transport.address,
            store=self.store,
            waits=HandoffWaits(self.store, transport),
            recalls=Recalls(self.store, settings.disk.recall_s if settings.disk else 0.0),
            verifications=Verifications(self.store),
            connections=set(),
            tasks=set(),
        )
        self._server: asyncio.Server | None = None
        self._housekeeping: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Where other stores reach this one."""
        return self._transport.address

    @property
    def socket_name(self) -> str:
        """Where processes of this node reach it."""
        return self._settings.socket_name

    @property
    def connections(self) -> int:
        """How many local connections are open."""
        return len(self._reception.connections)

    async def start(self) -> None:
        """Return when both sides are reachable. Raises `OSError` when the name or the address is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: StoreConnection(self._reception), "\0" + self._settings.socket_name, backlog=1024
        )
        await self._transport.serve(self.store)
        work = (self._sweep(), self._populate(), self._keep_room(), self._use_disk())
        self._housekeeping = [loop.create_task(job) for job in work]

    async def close(self) -> None:
        """Close every connection and end every wait. What the store held is gone."""
        if self._server is not None:
            await self._stop_accepting(self._server)
        connections = list(self._reception.connections)
        for connection in connections:
            connection.close()
        tasks = [*self._housekeeping, *self._reception.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transport.close()
        await asyncio.gather(*(connection.closed for connection in connections))
        await self._reception.recalls.close()
        await self._reception.verifications.close()
        if self.store.disk is not None:
            await self.store.disk.close()
        self.store.close()

    async def _stop_accepting(self, server: asyncio.Server) -> None:
        """A connection that is accepted but not known yet when asyncio's server closes would be leaked."""
        loop = asyncio.get_running_loop()
        for sock in server.sockets:
            loop.remove_reader(sock.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            self.store.expire()

    async def _keep_room(self) -> None:
        """Evict down to the low watermark whenever the high one is passed, a batch at a time."""
        while True:
            await self.store.until_crowded()
            while excess := self.store.excess:
                if self.store.make_room(min(excess, EVICTED_AT_ONCE)):
                    await asyncio.sleep(0)
                elif not await self.store.until_left():
                    break

    async def _use_disk(self) -> None:
        """Open the disk tier, if one is wanted, as soon as the size of a block is known."""
        settings = self._settings
        if settings.disk is None:
            return
        arena = await self.store.until_attached()
        try:
            opened = await open_disk(
                settings.disk, self._fingerprint, arena.slot_bytes, settings.eviction, settings.tenant_weights
            )
        except OSError as error:
            logger.error("store.disk: %s: going on without; give another path", error)
        else:
            self.store.use_disk(opened.tier, opened.heads)

    async def _populate(self) -> None:
        """Once the arena exists, make it resident in another thread while the store already works."""
        arena = await self.store.until_attached()
        for first_byte in range(0, arena.slots * arena.slot_bytes, POPULATE_BYTES):
            await asyncio.to_thread(arena.populate, first_byte, POPULATE_BYTES)

    def __repr__(self) -> str:
        return f"<StoreServer @{self.socket_name} {self.address} connections={self.connections} {self.store!r}>"
