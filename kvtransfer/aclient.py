"""An asyncio connection to the node's store: many requests at once, replies found by their number.

The same rules as `kvtransfer.client`: any trouble with the socket raises `StoreLost` in every request under way, and
the client is dead from then on.
"""

import asyncio
import itertools
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kvtransfer.arena import Arena
from kvtransfer.client import StoreClient
from kvtransfer.client_wire import ClientWire
from kvtransfer.errors import RequestRefused, StoreLost
from kvtransfer.framing import frame
from kvtransfer.greeting import answer, verdict
from kvtransfer.inspection import (
    Drop,
    Dropped,
    ListSlots,
    SlotPage,
    Statistics,
    StoreStatistics,
    Verified,
    Verify,
)
from kvtransfer.protocol import (
    Abandon,
    Announce,
    AwaitHandoff,
    Commit,
    Conclude,
    Distrust,
    Done,
    Failed,
    Fetch,
    HandoffEnded,
    Label,
    Pin,
    Pinned,
    PinnedBlock,
    Release,
    Request,
    Reserve,
    Reserved,
    Unpin,
    Watch,
    Watched,
)
from kvtransfer.tenant import NO_TENANT, Tenant
from kvtransfer.transport import BlockKey

R = TypeVar("R")

WATCH_S = 10.0
"""How long a store without changes is waited for before it has to show that it lives."""

_encode = msgspec.msgpack.Encoder().encode


class AsyncStoreClient:
    """One greeted connection, used from one event loop. `timeout_s` bounds every request but the waits."""

    def __init__(self, wire: ClientWire, timeout_s: float) -> None:
        """Use `connect`."""
        self.epoch = ""
        self.address = ""
        self._wire = wire
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._credentials = ("", "", "", b"")

    @classmethod
    async def connect(
        cls, socket_name: str, fingerprint: str, name: str, secret: bytes, timeout_s: float = 10.0
    ) -> "AsyncStoreClient":
        """Connect and greet. Raises `StoreLost` when nobody answers in time, `StoreRefused` when not let in."""
        try:
            async with asyncio.timeout(timeout_s):
                _, wire = await asyncio.get_running_loop().create_unix_connection(
                    ClientWire, sock=await _connected_socket(socket_name)
                )
                client = cls(wire, timeout_s)
                client._credentials = (socket_name, fingerprint, name, secret)
                try:
                    await client._greet()
                except BaseException:
                    await client.close()
                    raise
        except OSError as error:
            raise StoreLost(f"store {socket_name!r}: {error or 'no answer in time'}") from error
        return client

    @property
    def is_lost(self) -> bool:
        """Whether the connection is dead."""
        return self._wire.lost is not None

    async def until_lost(self) -> None:
        """Return when the connection is dead."""
        await asyncio.shield(self._wire.closed)

    async def attach(self, slot_bytes: int) -> Arena:
        """Map the arena, over a short connection of its own. Raises `RequestRefused` for another slot size."""
        return await asyncio.to_thread(_attach_once, *self._credentials, self._timeout_s, slot_bytes, self.epoch)

    async def reserve(self, keys: Sequence[BlockKey], tenant: Tenant = NO_TENANT) -> Reserved:
        """Slots to write these blocks of a tenant into."""
        return await self._ask(Reserve(next(self._ids), list(keys), tenant), Reserved)

    async def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int]) -> int:
        """The reserved slots hold whole blocks now; how many were still ours."""
        return (await self._ask(Commit(next(self._ids), list(keys), list(checksums)), Done)).count

    async def abandon(self, keys: Sequence[BlockKey]) -> int:
        """The reserved slots will not be written; how many were still ours."""
        return (await self._ask(Abandon(next(self._ids), list(keys)), Done)).count

    async def announce(self, handoff_id: str, keys: Sequence[BlockKey]) -> None:
        """Name the blocks of a hand-off, in prompt order. Raises `RequestRefused` when it is announced already."""
        await self._ask(Announce(next(self._ids), handoff_id, list(keys)), Done)

    async def conclude(self, handoff_id: str) -> None:
        """Nothing more will be committed for this hand-off."""
        await self._ask(Conclude(next(self._ids), handoff_id), Done)

    async def await_handoff(
        self, handoff_id: str, source: str | None, deadline_s: float, tenant: Tenant = NO_TENANT
    ) -> HandoffEnded:
        """Wait for a hand-off's blocks; they stay pinned until `release`. Cancelling the wait releases them."""
        return await self._wait(AwaitHandoff(next(self._ids), handoff_id, source, deadline_s, tenant))

    async def fetch(
        self, handoff_id: str, labels: Sequence[int], source: str, deadline_s: float, tenant: Tenant = NO_TENANT
    ) -> HandoffEnded:
        """Bring blocks with these labels from the store at `source`; those that are here stay pinned until `release` of
        `handoff_id`, a new name. Cancelling the wait releases them.
        """
        return await self._wait(Fetch(next(self._ids), handoff_id, list(labels), source, deadline_s, tenant))

    async def _wait(self, request: AwaitHandoff | Fetch) -> HandoffEnded:
        try:
            return await self._ask(request, HandoffEnded, request.deadline_s + self._timeout_s)
        except asyncio.CancelledError:
            if not self.is_lost:
                self._send(Release(next(self._ids), request.handoff_id))
            raise

    async def release(self, handoff_id: str) -> None:
        """Drop the pins of a wait. Unknown ids are fine."""
        await self._ask(Release(next(self._ids), handoff_id), Done)

    async def pin(self, keys: Sequence[BlockKey]) -> list[PinnedBlock]:
        """Pin the longest readable prefix of `keys`."""
        return (await self._ask(Pin(next(self._ids), list(keys)), Pinned)).blocks

    async def unpin(self, keys: Sequence[BlockKey]) -> int:
        """Drop one pin of each key; how many there were."""
        return (await self._ask(Unpin(next(self._ids), list(keys)), Done)).count

    async def distrust(self, keys: Sequence[BlockKey]) -> int:
        """These blocks failed their checksum; how many were still known."""
        return (await self._ask(Distrust(next(self._ids), list(keys)), Done)).count

    async def statistics(self) -> StoreStatistics:
        """The store's own snapshot."""
        return await self._ask(Statistics(next(self._ids)), StoreStatistics)

    async def slots(self, first_slot: int) -> SlotPage:
        """What is in some slots, from that one on."""
        return await self._ask(ListSlots(next(self._ids), first_slot), SlotPage)

    async def drop(self, keys: Sequence[BlockKey]) -> Dropped:
        """Forget blocks that nobody is using."""
        return await self._ask(Drop(next(self._ids), list(keys)), Dropped)

    async def verify(self, first_slot: int) -> Verified:
        """Compute the checksums of what is in some slots, from that one on; what is corrupt is forgotten."""
        return await self._ask(Verify(next(self._ids), first_slot), Verified)

    async def label(self, labels: Mapping[BlockKey, int]) -> int:
        """Keep names with blocks, for those who watch; how many were there and had none."""
        return (await self._ask(Label(next(self._ids), list(labels), list(labels.values())), Done)).count

    async def watch(self, wait_s: float = WATCH_S) -> AsyncGenerator[Watched, None]:
        """Which blocks can be read: a snapshot, then each change, in order. Raises `StoreLost` with the connection.

        One watch at a time; a new one fails the one before.
        """
        start_over = True
        while True:
            request = Watch(next(self._ids), start_over, wait_s)
            watched = await self._ask(request, Watched, wait_s + self._timeout_s)
            start_over = False
            if watched.snapshot or watched.committed or watched.gone:
                yield watched

    async def close(self) -> None:
        """End the connection; the store releases all it held. Safe to call twice."""
        self._wire.fail(StoreLost("the connection is closed"))
        await asyncio.shield(self._wire.closed)

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else "open"
        return f"<AsyncStoreClient epoch={self.epoch} {state} waiting={len(self._wire.waiting)}>"

    async def _greet(self) -> None:
        _, fingerprint, name, secret = self._credentials
        self._wire.transport.write(frame(answer(await self._greeting_frame(), secret, fingerprint, name)))
        welcome = verdict(await self._greeting_frame())
        self._wire.is_greeted = True
        self.epoch, self.address = welcome.epoch, welcome.address

    async def _greeting_frame(self) -> bytes:
        body = await self._wire.greeting.get()
        if not body:
            raise self._wire.lost or StoreLost("the store sent an empty frame")
        return body

    async def _ask(self, request: Request, kind: type[R], timeout_s: float | None = None) -> R:
        """The reply. A reply that never comes means the store is lost."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wire.waiting[request.id] = future
        try:
            self._send(request)
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                reply = await future
        except TimeoutError:
            self._wire.fail(StoreLost(f"no reply to {type(request).__name__} in time"))
            raise StoreLost(f"no reply to {type(request).__name__} in time") from None
        finally:
            del self._wire.waiting[request.id]
        if isinstance(reply, Failed):
            raise RequestRefused(reply.reason)
        if not isinstance(reply, kind):
            self._wire.fail(StoreLost(f"the store answered {type(reply).__name__}"))
            raise StoreLost(f"the store answered {type(reply).__name__}")
        return reply

    def _send(self, request: Request) -> None:
        if self._wire.lost is not None:
            raise StoreLost(str(self._wire.lost))
        self._wire.transport.write(frame(_encode(request)))


async def _connected_socket(socket_name: str) -> socket.socket:
    """uvloop connects to no abstract name by itself, but takes a socket that is connected."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connecting, "\0" + socket_name)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _attach_once(
    socket_name: str, fingerprint: str, name: str, secret: bytes, timeout_s: float, slot_bytes: int, epoch: str
) -> Arena:
    with StoreClient.connect(socket_name, fingerprint, f"{name} (attach)", secret, timeout_s) as client:
        if client.epoch != epoch:
            raise StoreLost(f"the store of epoch {epoch} is gone")
        return client.attach(slot_bytes)
