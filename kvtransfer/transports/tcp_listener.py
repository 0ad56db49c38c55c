"""Accepts connections from other stores, greets them, and finds out what each is: a peer's control connection, or a
lane of one that is here already.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from kvtransfer.acceptor import Acceptor
from kvtransfer.errors import FramingError, StoreRefused
from kvtransfer.greeting import MAX_GREETING_BYTES, Gatekeeper, Welcome
from kvtransfer.refusals import Refusals
from kvtransfer.tasks import TaskSet
from kvtransfer.transport import BlockSource
from kvtransfer.transports.frame_socket import FrameSocket, prepare
from kvtransfer.transports.nixl import NixlAgent
from kvtransfer.transports.tcp_frames import Join, encode, first_from_destination
from kvtransfer.transports.tcp_push import PushSession, refuse
from kvtransfer.transports.tcp_settings import TcpSettings
from kvtransfer.transports.tls_handshake import shake_hands

logger = logging.getLogger(__name__)


class Listener:
    """From `start` to `close`."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        keeper: Callable[[], Gatekeeper],
        source: BlockSource,
        settings: TcpSettings,
        nixl: NixlAgent | None,
    ) -> None:
        """`keeper` decides about one newcomer. `sock` listens, and is the listener's from now on."""
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(sock, self._accepted)
        self._address = address
        self._keeper = keeper
        self._source = source
        self._settings = settings
        self._nixl = nixl
        self._sessions: dict[bytes, PushSession] = {}
        self._tasks = TaskSet()
        self._refusals = Refusals(logger)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._tasks)

    def start(self) -> None:
        """Accept from now on."""
        self._acceptor.start()

    async def close(self) -> None:
        """Accept no more, and end every connection."""
        self._acceptor.close()
        await self._tasks.close()

    def _accepted(self, sock: socket.socket, host: str) -> None:
        if self.connections >= self._settings.max_connections:
            logger.warning("a store is turned away: %d connections are open", self.connections)
            sock.close()
        else:
            self._tasks.spawn(self._admit(sock, host)).add_done_callback(lambda _: sock.close())

    async def _admit(self, sock: socket.socket, host: str) -> None:
        """With TLS first, where it is spoken. Whoever cannot has no way to be told why."""
        prepare(sock, self._settings.socket_buffer_bytes, self._settings.stall_s)
        greeted_by = self._loop.time() + self._settings.connect_s
        try:
            async with asyncio.timeout_at(greeted_by):
                secured = await self._secured(sock)
        except StoreRefused as error:
            self._refused(host, str(error))
        except TimeoutError:
            self._refused(host, f"no TLS within {self._settings.connect_s:g} s, which security.tls asks for")
        except OSError as error:
            logger.info("%s is gone: %s", host, error or type(error).__name__)
        else:
            await self._serve(secured, host, greeted_by)

    async def _secured(self, sock: socket.socket) -> socket.socket:
        tls = self._settings.tls
        return sock if tls is None else await shake_hands(sock, tls.accepting(), server_side=True)

    def _refused(self, host: str, why: str) -> None:
        self._refusals.note(host, why)
        self._source.count_refused()

    async def _serve(self, sock: socket.socket, host: str, greeted_by: float) -> None:
        """Never raises for the peer's faults: they are logged, told to the peer and end the connection."""
        name = host
        connection = FrameSocket(sock, MAX_GREETING_BYTES, self._settings.stall_s)
        try:
            async with asyncio.timeout_at(greeted_by):
                name = await self._greet(connection)
                first = first_from_destination.decode(await _body(connection))
            if isinstance(first, Join):
                await self._join(first, connection)
            else:
                connection.allow(self._settings.max_frame_bytes)
                await self._control(name, connection)
        except (FramingError, StoreRefused) as error:
            self._refused(host, str(error))
            await refuse(connection, error)
        except OSError as error:
            logger.info("%s is gone: %s", name, error or type(error).__name__)
        finally:
            connection.close()

    async def _greet(self, connection: FrameSocket) -> str:
        gatekeeper = self._keeper()
        await connection.send(gatekeeper.challenge())
        greet = gatekeeper.admit(await _body(connection))
        await connection.send(encode(Welcome("", self._address)))
        return f"store {greet.name!r}"

    async def _control(self, name: str, connection: FrameSocket) -> None:
        session = PushSession(name, connection, self._source, self._settings, self._nixl)
        self._sessions[session.token] = session
        try:
            await session.run()
        finally:
            del self._sessions[session.token]

    async def _join(self, join: Join, connection: FrameSocket) -> None:
        session = self._sessions.get(join.session)
        if session is None:
            raise StoreRefused("a lane of no session")
        if session.lanes.count >= self._settings.max_lanes:
            raise StoreRefused(f"{self._settings.max_lanes} lanes have joined, the most allowed")
        await session.lanes.run(connection.detach())

    def __repr__(self) -> str:
        return f"<Listener {self._address} sessions={len(self._sessions)} connections={self.connections}>"


async def _body(connection: FrameSocket) -> bytes:
    body = await connection.receive()
    if body is None:
        raise ConnectionResetError("left before greeting")
    return body
