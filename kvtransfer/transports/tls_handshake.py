"""Puts TLS on a connection: in the loop for control connections and whatever comes in, in its own thread for a lane."""

import socket
import ssl

from kvtransfer.errors import StoreRefused
from kvtransfer.tls import reason
from kvtransfer.transports.readiness import until_readable, until_writable


async def shake_hands(sock: socket.socket, context: ssl.SSLContext, server_side: bool = False) -> ssl.SSLSocket:
    """The non-blocking socket with TLS on it, in place of `sock`. Raises `StoreRefused`, and `OSError` when the peer
    is gone. The caller brings the deadline.
    """
    secured = context.wrap_socket(sock, server_side=server_side, do_handshake_on_connect=False)
    try:
        await _to_the_end(secured)
    except ssl.SSLError as error:
        secured.close()
        raise StoreRefused(reason(error)) from None
    except BaseException:
        secured.close()
        raise
    return secured


async def _to_the_end(secured: ssl.SSLSocket) -> None:
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            await until_readable(secured)
        except ssl.SSLWantWriteError:
            await until_writable(secured)
        else:
            return


def shake_hands_here(secured: ssl.SSLSocket) -> None:
    """In this thread, on a socket that blocks for as long as it may take. Raises `StoreRefused` and `OSError`."""
    try:
        secured.do_handshake()
    except ssl.SSLError as error:
        raise StoreRefused(reason(error)) from None
