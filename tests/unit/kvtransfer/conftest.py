"""Stores that really listen: in this loop for asyncio, in a thread of their own for blocking clients."""

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.client import StoreClient
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transports.loopback import LoopbackNetwork
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings

SECRET = b"secret"
FINGERPRINT = "fp"
SLOT_BYTES = 4096
QUICK = TcpSettings(stall_s=1.0, quiesce_s=0.1, in_band_bytes=0)

_numbers = itertools.count()


def fresh_settings(slots: int = 16, **options: float) -> StoreSettings:
    """A store nobody else listens for."""
    name = f"baton-test-{os.getpid()}-{next(_numbers)}"
    return StoreSettings(slots * SLOT_BYTES, name, **options)  # type: ignore[arg-type]


MakeServer = Callable[..., Awaitable[StoreServer]]
Connect = Callable[..., Awaitable[AsyncStoreClient]]


@pytest.fixture
async def make_server() -> AsyncIterator[MakeServer]:
    """Starts stores of one network in this loop."""
    network = LoopbackNetwork()
    servers: list[StoreServer] = []

    async def make(**options: float) -> StoreServer:
        server = StoreServer(fresh_settings(**options), SECRET, FINGERPRINT, network.open())  # type: ignore[arg-type]
        await server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        await server.close()
        server.store.check()
        assert server.store.slot_statistics().pins == server.store._handoffs.pins


@pytest.fixture
async def server(make_server: MakeServer) -> StoreServer:
    """One store with 16 slots of 4 KiB, attached."""
    server = await make_server()
    server.store.attach(SLOT_BYTES)
    return server


@pytest.fixture
async def connect(server: StoreServer) -> AsyncIterator[Connect]:
    """Opens asyncio clients of `server`, or of another one."""
    clients: list[AsyncStoreClient] = []

    async def open_client(to: StoreServer | None = None) -> AsyncStoreClient:
        name = (to or server).socket_name
        clients.append(await AsyncStoreClient.connect(name, FINGERPRINT, "test", SECRET, 5.0))
        return clients[-1]

    yield open_client
    for client in clients:
        await client.close()


class ThreadedServer:
    """A store in a thread with a loop of its own."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = StoreServer(self.settings, SECRET, FINGERPRINT, LoopbackNetwork().open())
        await server.start()
        self._started.set()
        await self._stop.wait()
        await server.close()


@pytest.fixture
def threaded_server() -> Iterator[ThreadedServer]:
    """A running store for blocking clients."""
    server = ThreadedServer(fresh_settings())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def open_client(threaded_server: ThreadedServer) -> Iterator[Callable[[], StoreClient]]:
    """Opens blocking clients of the threaded server."""
    clients: list[StoreClient] = []

    def make() -> StoreClient:
        name = threaded_server.settings.socket_name
        clients.append(StoreClient.connect(name, FINGERPRINT, "test", SECRET, 5.0))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  (the condition is other code's state, which announces nothing)
            await asyncio.sleep(0)


@pytest.fixture
def store() -> Store:
    store = Store(StoreSettings(16 * SLOT_BYTES, "unused"))
    store.attach(SLOT_BYTES)
    return store


@pytest.fixture
async def transport(store: Store) -> AsyncIterator[TcpTransport]:
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", streams=1, settings=QUICK)
    await transport.serve(store)
    yield transport
    await transport.close()
    store.check()
    assert store.slot_statistics().pins == store._handoffs.pins
    assert store.slot_statistics().writing == 0
