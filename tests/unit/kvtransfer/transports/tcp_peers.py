"""A transport of a small store, and peers of it that a test plays by hand."""

import asyncio
from collections.abc import Awaitable, Callable

from kvtransfer.auth import prove
from kvtransfer.checksum import block_checksum
from kvtransfer.greeting import PROTOCOL_VERSION, Challenge, Greet, Welcome
from kvtransfer.store import Store
from kvtransfer.transports.tcp_frames import Announced, Join, Open, Pull, Ready, Session, Take, Want
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET
from tests.unit.kvtransfer.raw_peer import RawPeer

KEYS = [bytes([i]) * 32 for i in range(3)]


def fill(store: Store, *keys: bytes) -> None:
    """Commit blocks of a hand-off `h` of all KEYS."""
    owner = store.open_owner()
    store.announce(owner, "h", KEYS)
    assert store.arena is not None
    for key, slot in zip(keys, store.reserve(owner, keys).slots, strict=True):
        assert slot is not None
        store.commit(owner, [key], [block_checksum(store.arena.slot(slot))])


Knock = Callable[[], Awaitable[RawPeer]]


async def let_in(peer: RawPeer) -> RawPeer:
    challenge = await peer.receive(Challenge)
    peer.send(Greet(PROTOCOL_VERSION, FINGERPRINT, "raw", prove(SECRET, challenge.nonce)))
    await peer.receive(Welcome)
    return peer


async def greeted(knock: Knock) -> RawPeer:
    """With a session of its own, which no lane has joined."""
    peer = await let_in(await knock())
    peer.send(Open())
    peer.session = (await peer.receive(Session)).session
    return peer


async def lane_of(peer: RawPeer, knock: Knock) -> RawPeer:
    lane = await let_in(await knock())
    lane.send(Join(peer.session))
    return lane


class FakeSource:
    """A listening peer whose control connections and lanes a test answers by hand."""

    def __init__(self) -> None:
        self.controls: asyncio.Queue[RawPeer] = asyncio.Queue()
        self.lanes: asyncio.Queue[RawPeer] = asyncio.Queue()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = RawPeer(reader, writer)
        peer.send(Challenge(PROTOCOL_VERSION, b"n" * 32))
        await peer.receive(Greet)
        peer.send(Welcome("", self.address))
        first = await peer.receive(Open | Join)  # type: ignore[arg-type]
        (self.lanes if isinstance(first, Join) else self.controls).put_nowait(peer)

    async def pulled(self) -> tuple[RawPeer, RawPeer]:
        """A control connection that got `Pull` 1, announced KEYS and was told `Want`, and its lane."""
        peer = await self.controls.get()
        peer.send(Session(b"session"))
        await peer.receive(Pull)
        peer.send(Announced(1, KEYS))
        assert await peer.receive(Want) == Want(1, [0, 1, 2])
        return peer, await self.lanes.get()

    async def taken(self) -> tuple[RawPeer, RawPeer]:
        """The same, and the first block has been taken."""
        peer, lane = await self.pulled()
        peer.send(Ready(1, [0], [0], [0]))
        assert await peer.receive(Take) == Take(1, [0])
        return peer, lane
