"""Blocks over TCP: MessagePack control frames, and raw payloads straight from and into the arenas.

Listens on a port the kernel chooses. Peers prove the cluster secret and the KV fingerprint. To each peer there is one
session: a control connection and `streams` lanes, over which every pull spreads.
"""

import asyncio
import logging
import socket
from urllib.parse import urlsplit

from kvtransfer.errors import StoreRefused
from kvtransfer.greeting import Gatekeeper
from kvtransfer.refusals import Refusals
from kvtransfer.tasks import TaskSet
from kvtransfer.transport import Asked, BlockSink, BlockSource, HandoffState, PullResult
from kvtransfer.transports.frame_socket import prepare
from kvtransfer.transports.nixl import NixlAgent
from kvtransfer.transports.tcp_dial import Dial, resolve
from kvtransfer.transports.tcp_listener import Listener
from kvtransfer.transports.tcp_pull import PullSession
from kvtransfer.transports.tcp_settings import TcpSettings

logger = logging.getLogger(__name__)


class TcpTransport:
    """See `kvtransfer.transport.Transport`. `host` must be an address of this node that other nodes can reach."""

    def __init__(
        self,
        secret: bytes,
        fingerprint: str,
        host: str,
        streams: int = 2,
        settings: TcpSettings | None = None,
        nixl: NixlAgent | None = None,
    ) -> None:
        """`settings` holds the bounds. With `nixl`, which is closed with the transport, blocks are read by NIXL from
        peers that have it too.
        """
        self._secret = secret
        self._fingerprint = fingerprint
        self._host = host
        self._streams = streams
        self._settings = settings or TcpSettings()
        self._nixl = nixl
        self._address = ""
        self._listener: Listener | None = None
        self._peers: dict[str, PullSession] = {}
        self._tasks = TaskSet()
        self._refusals = Refusals(logger, "cannot pull from %s: %s")

    @property
    def address(self) -> str:
        return self._address

    @property
    def accepted(self) -> int:
        """How many connections of other stores are open, lanes included."""
        return 0 if self._listener is None else self._listener.connections

    def session(self, address: str) -> PullSession | None:
        """The session with a peer that blocks are pulled from, while there is one."""
        return self._peers.get(address)

    async def serve(self, source: BlockSource) -> None:
        family, where = await resolve(self._host, 0)
        sock = socket.socket(family, socket.SOCK_STREAM)
        prepare(sock, self._settings.socket_buffer_bytes, self._settings.stall_s)
        sock.bind(where)
        sock.listen(256)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._address = f"tcp://{host}:{sock.getsockname()[1]}"
        self._listener = Listener(
            sock,
            self._address,
            lambda: Gatekeeper(self._secret, self._fingerprint),
            source,
            self._settings,
            self._nixl,
        )
        self._listener.start()

    async def pull(self, address: str, asked: Asked, sink: BlockSink, deadline_s: float) -> PullResult:
        session = self._peers.get(address)
        if session is None or session.is_over:
            where = _host_and_port(address)
            if where is None:
                return PullResult(HandoffState.FAILED, 0, 0, f"{address!r} is no address like tcp://host:port")
            session = self._open(address, *where)
        return await session.pull(asked, sink, deadline_s)

    async def close(self) -> None:
        await self._tasks.close()
        if self._listener is not None:
            await self._listener.close()
        if self._nixl is not None:
            await asyncio.to_thread(self._nixl.close)
            self._nixl = None

    def _open(self, address: str, host: str, port: int) -> PullSession:
        dial = Dial(host, port, self._secret, self._fingerprint, self._settings)
        session = self._peers[address] = PullSession(address, dial, self._streams, self._settings, self._nixl)
        self._tasks.spawn(self._run(address, session))
        return session

    async def _run(self, address: str, session: PullSession) -> None:
        try:
            await session.run()
        finally:
            if self._peers.get(address) is session:
                del self._peers[address]
            if isinstance(session.fault, StoreRefused):
                self._refusals.note(address, str(session.fault))

    def __repr__(self) -> str:
        return f"<TcpTransport {self._address} peers={len(self._peers)} accepted={self.accepted}>"


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Of `tcp://host:port`; None when it is none."""
    try:
        target = urlsplit(address)
        host, port = target.hostname, target.port
    except ValueError:
        return None
    return (host, port) if target.scheme == "tcp" and host and port else None
