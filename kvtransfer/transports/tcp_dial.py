"""How a peer is reached: its resolved address, and what is said to be let in."""

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

from kvtransfer.errors import StoreLost, StoreRefused
from kvtransfer.greeting import MAX_GREETING_BYTES, answer, verdict
from kvtransfer.tls import reason
from kvtransfer.transports.frame_socket import FrameSocket, prepare
from kvtransfer.transports.tcp_settings import TcpSettings
from kvtransfer.transports.tls_handshake import shake_hands

Where = tuple[Any, ...]
"""A socket address of the family it was resolved for."""


@dataclass(slots=True)
class Dial:
    """One peer. `where` is known once it has been resolved."""

    host: str
    port: int
    secret: bytes = field(repr=False)
    fingerprint: str
    settings: TcpSettings
    where: Where = ()
    family: int = socket.AF_INET

    async def connect(self) -> FrameSocket:
        """A greeted connection. Raises `OSError` and `KvTransferError`."""
        self.family, self.where = await resolve(self.host, self.port)
        sock = self.open()
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.where)
            if self.settings.tls is not None:
                sock = await shake_hands(sock, self.settings.tls.dialling())
            connection = FrameSocket(sock, MAX_GREETING_BYTES, self.settings.stall_s)
            await connection.send(answer(await _body(connection), self.secret, self.fingerprint, "store"))
            verdict(await _body(connection))
        except ssl.SSLError as error:  # whether it believes us, the peer says after the handshake
            sock.close()
            raise StoreRefused(reason(error)) from None
        except BaseException:
            sock.close()
            raise
        connection.allow(self.settings.max_frame_bytes)
        return connection

    def secured(self, sock: socket.socket) -> socket.socket:
        """The connected socket, with TLS on it where it is spoken; the handshake is still to come."""
        tls = self.settings.tls
        return sock if tls is None else tls.dialling().wrap_socket(sock, do_handshake_on_connect=False)

    def open(self) -> socket.socket:
        """A socket for another connection to the peer, not connected yet."""
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        return prepare(sock, self.settings.socket_buffer_bytes, self.settings.stall_s)


async def resolve(host: str, port: int) -> tuple[int, Where]:
    """Family and address. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, where = found[0]
    return family, where


async def _body(connection: FrameSocket) -> bytes:
    body = await connection.receive()
    if body is None:
        raise StoreLost("the peer closed the connection before the greeting was over")
    return body
