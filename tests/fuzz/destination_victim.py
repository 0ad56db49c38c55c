"""A store as the destination of blocks: it pulls from hostile sources."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from kvtransfer.greeting import PROTOCOL_VERSION, Challenge, Welcome
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState, PullResult
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_frames import (
    Announced,
    FirstFromDestination,
    FromSource,
    Join,
    Payload,
    Ready,
    Session,
)
from tests.fuzz.frame_bytes import spoiled_frame
from tests.fuzz.peer import HostileServer, Peer
from tests.fuzz.store_victim import FINGERPRINT, KEYS, QUICK, SECRET, SLOT_BYTES, SLOTS, filled
from tests.fuzz.typed import Known, Maker, encoded

PULL_S = 0.4
KNOWN = Known(
    {
        "pull": tuple(range(1, 4)),
        "keys": KEYS[:8],
        "positions": tuple(range(8)),
        "slots": tuple(range(8)),
        "checksums": (0, 1, 2**64 - 1),
        "content": (bytes(SLOT_BYTES), bytes(2 * SLOT_BYTES), b"", b"x"),
        "block_bytes": (SLOT_BYTES, SLOT_BYTES, SLOT_BYTES, 0, -1, 2**40, 1),
        "session": (b"session",),
    }
)


class HostileSource(HostileServer):
    """Every connection is let in, mostly, and sent whatever comes to mind."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._maker = Maker(rng, KNOWN, 0.005)
        self.sent = 0

    async def start(self) -> None:
        """Listen."""
        self.address = f"tcp://{await self.listen()}"

    async def _talk(self, peer: Peer) -> None:
        await self._send(peer, Challenge(PROTOCOL_VERSION, b"n" * 32), 0.03)
        await peer.body()
        await self._send(peer, Welcome("", self.address), 0.03)
        first = await peer.body()
        with suppress(msgspec.MsgspecError, TypeError):
            is_lane = isinstance(msgspec.msgpack.decode(first or b"", type=FirstFromDestination), Join)
            await (self._lane(peer) if is_lane else self._control(peer))
        if self._rng.random() < 0.3:
            peer.abort()

    async def _control(self, peer: Peer) -> None:
        await self._send(peer, Session(b"session"), 0.03)
        await peer.body()
        for number in range(1, 3):
            await self._send(peer, Announced(number, list(KEYS[:8])), 0.03)
        if self._rng.random() < 0.7:
            await peer.body()
            await self._send(peer, Ready(1, [0, 1, 2], [0, 0, 0], [0, 1, 2]), 0.03)
        for _ in range(self._rng.choice((0, 1, 3, 10, 20))):
            await self._send(peer, self._maker.message(FromSource), 0.03)

    async def _lane(self, peer: Peer) -> None:
        await asyncio.sleep(self._rng.random() * 0.1)
        for _ in range(self._rng.choice((0, 1, 3))):
            header = Payload(1, [self._rng.randrange(3)], SLOT_BYTES)
            await self._send(peer, header if self._rng.random() < 0.6 else self._maker.message(Payload), 0.05)
            await peer.send(bytes(self._rng.choice((SLOT_BYTES, SLOT_BYTES, 100, 0))))

    async def _send(self, peer: Peer, message: object, share: float) -> None:
        self.sent += 1
        await peer.send(spoiled_frame(encoded(message), self._rng, share))


class DestinationVictim:
    """See `running_destination_victim`."""

    name = "store, as a destination"

    def __init__(self, transport: TcpTransport, store: Store, good: str) -> None:
        self._transport = transport
        self._store = store
        self._good = good
        self._owners = len(store._owners)

    async def attack(self, rng: random.Random) -> int:
        """See `Victim`."""
        source = HostileSource(rng)
        await source.start()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(rng.choice((1, 1, 3))):
                    group.create_task(self._pull(source.address, PULL_S))
        finally:
            await source.close()
        return source.sent

    async def _pull(self, address: str, deadline_s: float) -> PullResult:
        sink = PullSink(self._store)
        try:
            return await self._transport.pull(address, "h", sink, deadline_s)
        finally:
            sink.close()

    async def witness(self) -> list[str]:
        """See `Victim`."""
        store = Store(StoreSettings(SLOTS * SLOT_BYTES, "unused"))
        store.attach(SLOT_BYTES)
        sink = PullSink(store)
        try:
            result = await self._transport.pull(self._good, list(range(8)), sink, 20.0)
        finally:
            sink.close()
            store.close()
        return [] if result.state is HandoffState.READY else [f"the witness's pull ended {result}"]

    def left(self) -> dict[str, object]:
        """See `Victim`."""
        self._store.check()
        slots = self._store.slot_statistics()
        lanes = sum(thread.name == "kv-lane-in" for thread in threading.enumerate())
        held = {
            "sessions": len(self._transport._peers) - 1,
            "threads of lanes": lanes - 1,
            "pins": slots.pins,
            "writing slots": slots.writing,
            "owners": len(self._store._owners) - self._owners,
        }
        return {what: count for what, count in held.items() if count}


@asynccontextmanager
async def running_destination_victim() -> AsyncIterator[DestinationVictim]:
    """The witness keeps a session with a good source."""
    good_store = Store(StoreSettings(SLOTS * SLOT_BYTES, "unused"))
    filled(good_store, KEYS[:8])
    good = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK)
    await good.serve(good_store)
    store = Store(StoreSettings(SLOTS * SLOT_BYTES, "unused"))
    store.attach(SLOT_BYTES)
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", streams=1, settings=QUICK)
    try:
        victim = DestinationVictim(transport, store, good.address)
        await victim.witness()
        yield victim
    finally:
        await transport.close()
        await good.close()
        store.close()
        good_store.close()
