"""A wire between two stores that does to a lane's bytes what a test wants: flip, cut, hold back, swap."""

import asyncio
from collections.abc import Callable
from typing import Protocol

PIECE_BYTES = 8 * 1024


class Fault(Protocol):
    """What becomes of one piece of what the source sends on a connection."""

    def __call__(self, piece: bytes, sent: int) -> list[bytes] | None:
        """`sent` bytes of this connection came before. None: the connection is cut."""
        ...


def untouched(piece: bytes, sent: int) -> list[bytes]:
    """A good wire."""
    return [piece]


class Meddler:
    """Listens, and passes each connection on to the source."""

    def __init__(self, fault: Callable[[], Fault]) -> None:
        """`fault` is made anew for each connection."""
        self._fault = fault
        self._wires: set[asyncio.Task[None]] = set()

    async def start(self, source: str) -> str:
        """Where to pull from instead of `source`."""
        host, _, port = source.removeprefix("tcp://").rpartition(":")
        self._source = host, int(port)
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Cut everything."""
        self._server.close()
        for wire in self._wires:
            wire.cancel()
        await asyncio.gather(*self._wires, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._wires.add(asyncio.create_task(self._carry(reader, writer)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._source)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, back, untouched))
                group.create_task(_pass_on(there, writer, self._fault()))
        finally:
            for end in (writer, back):
                end.close()
            await asyncio.gather(writer.wait_closed(), back.wait_closed(), return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
    sent = 0
    while piece := await reader.read(PIECE_BYTES):
        pieces = fault(piece, sent)
        if pieces is None:
            break
        sent += len(piece)
        for part in pieces:
            writer.write(part)
        await writer.drain()
    raise ConnectionResetError("one direction is over, so the other is too")
