"""Takes what comes to a listening socket, and looks again later when no file descriptor is left."""

import asyncio
import logging
import socket
from collections.abc import Callable

logger = logging.getLogger(__name__)

RETRY_S = 0.1


class Acceptor:
    """From `start` to `close`. In a callback: awaiting a connection could lose it to a cancellation."""

    def __init__(self, sock: socket.socket, accepted: Callable[[socket.socket, str], None]) -> None:
        """`sock` listens, and is the acceptor's from now on. `accepted` gets each newcomer, and its host."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._accepted = accepted
        self._retry: asyncio.TimerHandle | None = None
        sock.setblocking(False)

    def start(self) -> None:
        """Accept from now on."""
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more."""
        if self._retry is not None:
            self._retry.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _accept(self) -> None:
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            logger.warning("nobody can connect for now: %s", error)
            self._loop.remove_reader(self._sock.fileno())
            self._retry = self._loop.call_later(RETRY_S, self.start)
        else:
            self._accepted(sock, str(address[0]))
