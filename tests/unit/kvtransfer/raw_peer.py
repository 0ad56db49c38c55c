"""A peer of a store that sends whatever a test likes."""

import asyncio
from typing import TypeVar

import msgspec

from kvtransfer.framing import LENGTH_BYTES, frame
from kvtransfer.greeting import Refused
from kvtransfer.transports.tcp_frames import Alive, encode

DEADLINE_S = 5

GARBAGE = (b"\xc1garbage", b"\x82\xa1a" + b"\x91" * 4000)
"""Bodies that are no message: no MessagePack, and a map whose first value is nested without end."""

T = TypeVar("T")

SIGN_OF_LIFE = encode(Alive())


class RawPeer:
    """Either side of a connection, local or between stores."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.session = b""

    def send(self, message: msgspec.Struct) -> None:
        self.writer.write(frame(msgspec.msgpack.encode(message)))

    async def receive(self, kind: type[T]) -> T:
        """The next message that is more than a sign of life."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                length = int.from_bytes(await self.reader.readexactly(LENGTH_BYTES), "little")
                body = await self.reader.readexactly(length)
                if body != SIGN_OF_LIFE:
                    return msgspec.msgpack.decode(body, type=kind)

    async def refusal(self) -> str:
        """Why the other side closes the connection; asserts that it does."""
        reason = (await self.receive(Refused)).reason
        assert await self.is_closed()
        await self.close()
        return reason

    async def is_closed(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read(1) == b""

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return
