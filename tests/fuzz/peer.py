"""Hostile ends of connections: they send what they are given, read no more than they must, and go in some way."""

import asyncio
import contextlib
import random

PATIENCE_S = 0.2
"""How long it waits for a victim that does not read, or has nothing to say."""

MOST_READ_BYTES = 1 << 20
ACCEPT_TURNS = 5


class Peer:
    """From a connected pair of streams to `leave`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._stuck = False

    async def body(self) -> bytes | None:
        """The next frame's body; None when none comes."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(10 * PATIENCE_S):
                length = int.from_bytes(await self._reader.readexactly(4), "little")
                return await self._reader.readexactly(length)
        return None

    async def send(self, data: bytes) -> None:
        """All of it, unless the victim is gone or does not read; then nothing more is sent."""
        if self._stuck:
            return
        self._stuck = True
        with contextlib.suppress(OSError, TimeoutError):
            self._writer.write(data)
            async with asyncio.timeout(PATIENCE_S):
                await self._writer.drain()
            self._stuck = False

    async def leave(self, rng: random.Random) -> None:
        """By the end of the stream, or by breaking the connection, having read the answers or not."""
        with contextlib.suppress(OSError, TimeoutError):
            if rng.random() < 0.5:
                if self._writer.can_write_eof() and not self._writer.is_closing():
                    self._writer.write_eof()
                async with asyncio.timeout(PATIENCE_S):
                    await self._reader.read(MOST_READ_BYTES)
        self.abort()

    def abort(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()


class HostileServer:
    """Listens; what is said to each connection is its subclass's. `close` breaks all."""

    def __init__(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []

    async def listen(self) -> str:
        """Where: `host:port`."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """A connection that is accepted but not known yet when asyncio's server closes would be leaked."""
        for sock in self._server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await self._talk(Peer(reader, writer))

    async def _talk(self, peer: Peer) -> None:
        raise NotImplementedError
