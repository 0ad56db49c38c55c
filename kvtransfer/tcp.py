"""Blocks over TCP: MessagePack control frames and raw payloads, straight from and into the arenas.

Listens on a port the kernel chooses. Peers prove the cluster secret and the KV fingerprint. At most `streams`
connections are opened to a peer; each pull goes to the least loaded one.
"""

import asyncio
import logging
import socket
from dataclasses import replace
from urllib.parse import urlsplit

from kvtransfer.frame_socket import FrameSocket, prepare
from kvtransfer.tasks import TaskSet
from kvtransfer.tcp_pull import PullConnection
from kvtransfer.tcp_push import PushConnection
from kvtransfer.tcp_settings import TcpSettings
from kvtransfer.transport import Asked, BlockSink, BlockSource, HandoffState, PullResult

logger = logging.getLogger(__name__)

ACCEPT_RETRY_S = 0.1
"""When no file descriptor is left, accepting is tried again after this."""


class TcpTransport:
    """See `kvtransfer.transport.Transport`. `host` must be an address of this node that other nodes can reach."""

    def __init__(
        self,
        secret: bytes,
        fingerprint: str,
        host: str,
        streams: int = 2,
        connect_s: float = 5.0,
        settings: TcpSettings | None = None,
    ) -> None:
        """`connect_s` bounds connecting and greeting; `settings` holds the other bounds."""
        self._secret = secret
        self._fingerprint = fingerprint
        self._host = host
        self._streams = streams
        self._settings = replace(settings or TcpSettings(), connect_s=connect_s)
        self._address = ""
        self._listener: socket.socket | None = None
        self._peers: dict[str, list[PullConnection]] = {}
        self._tasks = TaskSet()
        self._accepted = 0

    @property
    def address(self) -> str:
        return self._address

    async def serve(self, source: BlockSource) -> None:
        family, _, _, _, where = (await self._resolve(self._host, 0))[0]
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        prepare(self._listener, self._settings.socket_buffer_bytes, self._settings.stall_s)
        self._listener.bind(where)
        self._listener.listen(256)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._address = f"tcp://{host}:{self._listener.getsockname()[1]}"
        self._tasks.spawn(self._accept(self._listener, source))

    async def pull(self, address: str, asked: Asked, sink: BlockSink, deadline_s: float) -> PullResult:
        try:
            target = urlsplit(address)
            where = (target.hostname or "", target.port or 0)
        except ValueError:
            where = ("", 0)
        if not address.startswith("tcp://") or not all(where):
            return PullResult(HandoffState.FAILED, 0, 0, f"{address!r} is no address like tcp://host:port")
        return await self._connection(address, *where).pull(asked, sink, deadline_s)

    async def close(self) -> None:
        await self._tasks.close()
        if self._listener is not None:
            self._listener.close()

    def _connection(self, address: str, host: str, port: int) -> PullConnection:
        connections = self._peers.setdefault(address, [])
        usable = [connection for connection in connections if not connection.is_over]
        idlest = min(usable, key=lambda connection: connection.load, default=None)
        if idlest is not None and (idlest.load == 0 or len(usable) >= self._streams):
            return idlest
        connection = PullConnection(address, self._settings)
        connections.append(connection)
        self._tasks.spawn(self._run(connection, address, host, port))
        return connection

    async def _run(self, connection: PullConnection, address: str, host: str, port: int) -> None:
        try:
            await connection.run(lambda: self._connect(host, port), self._secret, self._fingerprint)
        finally:
            connections = self._peers[address]
            connections.remove(connection)
            if not connections:
                del self._peers[address]

    async def _connect(self, host: str, port: int) -> FrameSocket:
        family, _, _, _, where = (await self._resolve(host, port))[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            prepare(sock, self._settings.socket_buffer_bytes, self._settings.stall_s)
            await asyncio.get_running_loop().sock_connect(sock, where)
        except BaseException:
            sock.close()
            raise
        return self._wrap(sock)

    async def _accept(self, listener: socket.socket, source: BlockSource) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                logger.warning("cannot accept a store: %s", error)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            if self._accepted >= self._settings.max_connections:
                logger.warning("a store is turned away: %d connections are open", self._accepted)
                sock.close()
            else:
                self._accepted += 1
                self._tasks.spawn(self._push(sock, source))

    async def _push(self, sock: socket.socket, source: BlockSource) -> None:
        try:
            prepare(sock, self._settings.socket_buffer_bytes, self._settings.stall_s)
            connection = PushConnection(self._wrap(sock), source, self._settings)
            await connection.run(self._secret, self._fingerprint, self._address)
        finally:
            self._accepted -= 1
            sock.close()

    def _wrap(self, sock: socket.socket) -> FrameSocket:
        return FrameSocket(sock, self._settings.max_frame_bytes, self._settings.stall_s)

    async def _resolve(self, host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<TcpTransport {self._address} peers={len(self._peers)} accepted={self._accepted}>"
