"""Accepts gateways over TLS. asyncio's own server keeps one certificate for life, and says nothing of who was refused.

A connection has `connect_s` for its handshake, and holds up nobody meanwhile.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from kvtransfer.acceptor import Acceptor
from kvtransfer.refusals import Refusals
from kvtransfer.tasks import TaskSet
from kvtransfer.tls import Identity, reason

log = logging.getLogger(__name__)

MOST_HANDSHAKES = 1024
"""Under way at once; who comes then is turned away, and may come again."""


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
        self._acceptor = Acceptor(sock, self._accepted)
        self._protocol = protocol
        self._tls = tls
        self._connect_s = connect_s
        self._refusals = refusals
        self._handshakes = TaskSet()

    def start(self) -> None:
        """Accept from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """Accept no more. Connections that are through with their handshake stay."""
        self._acceptor.close()

    async def wait_closed(self) -> None:
        """After `close`: end the handshakes under way."""
        await self._handshakes.close()

    def _accepted(self, sock: socket.socket, host: str) -> None:
        if len(self._handshakes) >= MOST_HANDSHAKES:
            log.warning("a gateway is turned away: %d handshakes are under way", MOST_HANDSHAKES)
            sock.close()
            return
        sock.setblocking(False)
        self._handshakes.spawn(self._shake_hands(sock, host))

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
