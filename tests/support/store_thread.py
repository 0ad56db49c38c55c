"""A real KV store for tests: the server in a thread with an event loop of its own."""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kvtransfer.client import StoreClient
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import Transport
from kvtransfer.transports.loopback import LoopbackNetwork
from kvtransfer.transports.tcp import TcpTransport

SECRET = b"a secret for tests"
START_S = 5.0

T = TypeVar("T")

Carry = Callable[[str], Transport]
"""Makes a store's transport, given its fingerprint."""


def alone(fingerprint: str) -> Transport:
    """Nobody else is reached."""
    return LoopbackNetwork().open()


def over_tcp(fingerprint: str) -> Transport:
    """Every store of this machine that has the same secret and fingerprint is."""
    return TcpTransport(SECRET, fingerprint, "127.0.0.1")


class StoreThread:
    """One life of a store. `kill` ends it as a crash would; `start` begins another under the same name."""

    def __init__(
        self, fingerprint: str, arena_bytes: int = 64 * 1024 * 1024, transport: Carry = alone, **limits: Any
    ) -> None:
        self.fingerprint = fingerprint
        self._transport = transport
        self.socket_name = f"baton-test-{uuid.uuid4().hex}"
        self._settings = StoreSettings(arena_bytes, self.socket_name, **limits)

    def start(self) -> None:
        """Return when the store answers."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="store", daemon=True)
        self._thread.start()
        assert self._ready.wait(START_S), "the store did not start"

    def kill(self) -> None:
        """Return when the store is gone, with all it held."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)
        assert not self._thread.is_alive(), "the store did not end"

    def client(self) -> StoreClient:
        """A connection of the test's own."""
        return StoreClient.connect(self.socket_name, self.fingerprint, "test", SECRET, START_S)

    def look(self, question: Callable[[Store], T]) -> T:
        """Ask the store itself, in its own thread."""

        async def ask() -> T:
            return question(self.server.store)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(START_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.server = StoreServer(self._settings, SECRET, self.fingerprint, self._transport(self.fingerprint))
        await self.server.start()
        self._ready.set()
        await self._stop.wait()
        await self.server.close()


@contextmanager
def running_store(
    fingerprint: str, arena_bytes: int = 64 * 1024 * 1024, transport: Carry = alone, **limits: Any
) -> Iterator[StoreThread]:
    """A store that is gone afterwards."""
    store = StoreThread(fingerprint, arena_bytes, transport, **limits)
    store.start()
    try:
        yield store
    finally:
        store.kill()
