"""The KV store of a node as a Ray actor: one for each node and KV fingerprint, shared by all workers there.

Detached and pinned to its node; Ray restarts it when it dies (empty, with a new epoch). It ends by itself when no
worker has been connected for `idle_exit_s`. Its name and its socket follow from node and fingerprint, so whoever needs
it finds it or starts it with `ensure_store`.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.inspection import Dropped, SlotPage, StoreStatistics, Verified
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.tls import Identity, TlsFiles
from kvtransfer.transports.nixl import NixlAgent, TransportChoice, open_agent
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings

log = logging.getLogger(__name__)

NAMESPACE = "baton"
PREFIX = "baton-store-"
"""With which the name of every store's actor begins; the fingerprint and the node follow, then what tells settings
apart."""
RETRY_S = 0.5
IDLE_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class StoreEndpoint:
    """Where a store is reached: by the processes of its node, and by other stores."""

    socket_name: str
    address: str


@dataclass(frozen=True, slots=True)
class NodeStoreSettings:
    """One store. `fingerprint` is the digest of the KV fingerprint of the engines it serves.

    The socket name in `store` stays empty: it is `name`, which follows from all the rest.
    """

    node_id: str
    host: str
    fingerprint: str
    secret: bytes = field(repr=False)
    store: StoreSettings
    streams: int
    transport: TransportChoice
    idle_exit_s: float
    tls: TlsFiles | None

    @property
    def name(self) -> str:
        """Of the actor, and of its socket.

        Workers with another secret or other store settings get another store: the old one lets nobody in whom it does
        not know, and leaves by itself when its workers have gone.
        """
        kind = hashlib.sha256(repr(replace(self, node_id="", host="")).encode() + self.secret).hexdigest()
        return f"{PREFIX}{self.fingerprint[:12]}-{self.node_id[:12]}-{kind[:8]}"


class NodeStore:
    """The actor. The store starts with the first `endpoint`, also after Ray has restarted the actor."""

    def __init__(self, settings: NodeStoreSettings) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._server: StoreServer | None = None
        self._idle_watch: asyncio.Task[None] | None = None

    async def endpoint(self) -> StoreEndpoint:
        """Where the store is reached; starts it."""
        async with self._lock:
            if self._server is None:
                self._server = await self._start()
                self._idle_watch = asyncio.create_task(self._leave_when_idle(self._server))
        return StoreEndpoint(self._server.socket_name, self._server.address)

    # For people, who need not be on the node

    async def statistics(self) -> StoreStatistics:
        """See `AsyncStoreClient`."""
        async with self._visit() as visitor:
            return await visitor.statistics()

    async def slots(self, first_slot: int) -> SlotPage:
        """See `AsyncStoreClient`."""
        async with self._visit() as visitor:
            return await visitor.slots(first_slot)

    async def drop(self, keys: list[bytes]) -> Dropped:
        """See `AsyncStoreClient`."""
        async with self._visit() as visitor:
            return await visitor.drop(keys)

    async def verify(self, first_slot: int) -> Verified:
        """See `AsyncStoreClient`."""
        async with self._visit() as visitor:
            return await visitor.verify(first_slot)

    @asynccontextmanager
    async def _visit(self) -> AsyncIterator[AsyncStoreClient]:
        endpoint, settings = await self.endpoint(), self._settings
        visitor = await AsyncStoreClient.connect(
            endpoint.socket_name, settings.fingerprint, "baton store", settings.secret, settings.store.connect_s
        )
        try:
            yield visitor
        finally:
            await visitor.close()

    async def _start(self) -> StoreServer:
        settings = self._settings
        store = replace(settings.store, socket_name=settings.name)
        server = StoreServer(store, settings.secret, settings.fingerprint, self._transport())
        await server.start()
        return server

    def _transport(self) -> TcpTransport:
        settings = self._settings
        tls = None if settings.tls is None else Identity(settings.tls)
        network = TcpSettings(
            connect_s=settings.store.connect_s, max_frame_bytes=settings.store.max_frame_bytes, tls=tls
        )
        nixl = self._nixl()
        return TcpTransport(settings.secret, settings.fingerprint, settings.host, settings.streams, network, nixl)

    def _nixl(self) -> NixlAgent | None:
        if self._settings.tls is None:
            return open_agent(self._settings.transport)
        if self._settings.transport != "tcp":
            log.warning("blocks move without NIXL, which would move them in the clear past security.tls")
        return None

    async def _leave_when_idle(self, server: StoreServer) -> None:
        clock = asyncio.get_running_loop().time
        used_at = clock()
        while clock() - used_at < self._settings.idle_exit_s:
            await asyncio.sleep(IDLE_LOOK_S)
            if server.connections:
                used_at = clock()
        # An actor can end itself only from one of its own calls.
        ray.get_runtime_context().current_actor.leave.remote()

    async def leave(self) -> None:
        """End the store unless somebody has connected meanwhile; not restarted."""
        if self._server is not None and self._server.connections:
            self._idle_watch = asyncio.create_task(self._leave_when_idle(self._server))
            return
        if self._server is not None:
            await self._server.close()
        ray.actor.exit_actor()


async def ensure_store(settings: NodeStoreSettings, deadline_s: float) -> StoreEndpoint:
    """Find the node's store, or start it. Raises `OSError` when there is none after `deadline_s` seconds."""
    try:
        async with asyncio.timeout(deadline_s):
            return await _ensure(settings)
    except TimeoutError as error:
        raise OSError(f"the KV store {settings.name} did not start in {deadline_s:g} s") from error
    except RayError as error:
        raise OSError(f"the KV store {settings.name} did not start: {error}") from error


async def _ensure(settings: NodeStoreSettings) -> StoreEndpoint:
    while True:
        try:
            actor = await asyncio.to_thread(_find_or_start, settings)
            endpoint: StoreEndpoint = await actor.endpoint.remote()
        except RayActorError as error:
            # It was just leaving or dying: the next attempt finds the name free or the actor restarted.
            log.info("the KV store %s went away while being asked: %s", settings.name, error)
            await asyncio.sleep(RETRY_S)
        else:
            return endpoint


def _find_or_start(settings: NodeStoreSettings) -> Any:
    return (
        ray.remote(NodeStore)
        .options(
            name=settings.name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(settings.node_id, soft=False),
        )
        .remote(settings)
    )
