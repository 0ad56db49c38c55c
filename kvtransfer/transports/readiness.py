"""Waits for a non-blocking socket, of whatever kind: the loop's own calls take none with TLS on it."""

import asyncio
import socket


async def until_readable(sock: socket.socket) -> None:
    """Return when there is something to read, or the connection is over. Only one waits so for a socket."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock.fileno(), _resolve, ready)
    try:
        await ready
    finally:
        if sock.fileno() >= 0:
            loop.remove_reader(sock.fileno())


async def until_writable(sock: socket.socket) -> None:
    """Return when there is room to write, or the connection is over. Only one waits so for a socket."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(sock.fileno(), _resolve, ready)
    try:
        await ready
    finally:
        if sock.fileno() >= 0:
            loop.remove_writer(sock.fileno())


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
