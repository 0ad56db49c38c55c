"""Accepts gateways over TLS. asyncio's own server keeps one certificate for life, and says nothing of who was refused.

A connection has `connect_s` for its handshake, and holds up nobody meanwhile.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from kvtransfer.refusals import Refusals
from kvtransfer.tasks import TaskSet
from kvtransfer.tls import Identity, reason

log = logging.getLogger(__name__)

ACCEPT_RETRY_S = 0.1
"""When no file descriptor is left, accepting is tried again after this."""


class TlsListener:
    """From `start` to `close`. Used as an `asyncio.Server` is."""

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        tls: Identity,
        connect_s: float,
        refusals: Refusals,
    ) -> None:
        """`sock` listens, and is the listener's from now on."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._protocol = protocol
        self._tls = tls
        self._connect_s = connect_s
        self._refusals = refusals
        self._retry: asyncio.TimerHandle | None = None
        self._handshakes = TaskSet()
        sock.setblocking(False)

    def start(self) -> None:
        """Accept from now on."""
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more. Connections that are through with their handshake stay."""
        if self._retry is not None:
            self._retry.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    async def wait_closed(self) -> None:
        """After `close`: end the handshakes under way."""
        await self._handshakes.close()

    def _accept(self) -> None:
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("cannot accept a gateway: %s", error)
            self._loop.remove_reader(self._sock.fileno())
            self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.start)
        else:
            sock.setblocking(False)
            self._handshakes.spawn(self._shake_hands(sock, str(address[0])))

    async def _shake_hands(self, sock: socket.socket, host: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, sock, ssl=self._tls.accepting(), ssl_handshake_timeout=self._connect_s
            )
        except OSError as error:
            self._refusals.note(host, reason(error))
        except BaseException:
            sock.close()
            raise
