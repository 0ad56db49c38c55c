"""A store as the source of blocks: hostile destinations pull from it."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_frames import FromDestination, Join, Open, Session
from tests.fuzz.frame_bytes import spoiled_frame
from tests.fuzz.peer import Peer
from tests.fuzz.store_victim import FINGERPRINT, KEYS, QUICK, SECRET, SLOT_BYTES, SLOTS, filled, greeting
from tests.fuzz.typed import Known, Maker, encoded

KNOWN = Known(
    {
        "pull": tuple(range(4)),
        "asked": (*range(20), "h", "never"),
        "positions": tuple(range(18)),
        "deadline_s": (0.0, 0.02, 0.2, 1.0, -1.0, float("nan"), float("inf")),
        "read_blocks": (0, 0, 1, -1, 2**62),
    }
)


class SourceVictim:
    """See `running_source_victim`."""

    name = "store, as a source"

    def __init__(self, transport: TcpTransport, store: Store, other: TcpTransport) -> None:
        self._transport = transport
        self._store = store
        self._other = other

    async def attack(self, rng: random.Random) -> int:
        """See `Victim`."""
        peer, sent = await self._let_in(rng)
        await peer.send(spoiled_frame(encoded(Open()), rng, 0.04))
        session = b""
        body = await peer.body()
        with suppress(msgspec.MsgspecError, TypeError):
            session = msgspec.msgpack.decode(body or b"", type=Session).session
        lanes = [await self._lane(rng, session) for _ in range(rng.choice((0, 1, 2, 20)))] if session else []
        maker = Maker(rng, KNOWN, 0.005)
        for _ in range(rng.choice((0, 1, 6, 20, 40))):
            await peer.send(spoiled_frame(encoded(maker.message(FromDestination)), rng, 0.02))
            sent += 1
        await peer.leave(rng)
        for lane in lanes:
            await lane.leave(rng)
        return sent + 1 + 2 * len(lanes)

    async def _let_in(self, rng: random.Random) -> tuple[Peer, int]:
        port = int(self._transport.address.rpartition(":")[2])
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        challenge = await peer.body()
        if challenge is None or rng.random() < 0.05:
            return peer, 0
        await peer.send(spoiled_frame(greeting(challenge, rng), rng, 0.04))
        await peer.body()
        return peer, 1

    async def _lane(self, rng: random.Random, session: bytes) -> Peer:
        lane, _ = await self._let_in(rng)
        named = session if rng.random() < 0.9 else rng.randbytes(16)
        await lane.send(spoiled_frame(encoded(Join(named)), rng, 0.04))
        if rng.random() < 0.2:
            await lane.send(rng.randbytes(100))
        return lane

    async def witness(self) -> list[str]:
        """See `Victim`."""
        store = Store(StoreSettings(SLOTS * SLOT_BYTES, "unused"))
        store.attach(SLOT_BYTES)
        sink = PullSink(store)
        try:
            result = await self._other.pull(self._transport.address, list(range(16)), sink, 20.0)
            whole = all(store.is_readable(key) for key in KEYS[:16])
        finally:
            sink.close()
            store.close()
        return [] if result.state is HandoffState.READY and whole else [f"the witness's pull ended {result}"]

    def left(self) -> dict[str, object]:
        """See `Victim`."""
        self._store.check()
        slots = self._store.slot_statistics()
        assert self._transport._listener is not None
        held = {
            "connections": self._transport.accepted - 2,
            "sessions": len(self._transport._listener._sessions) - 1,
            "threads of lanes": sum(thread.name == "kv-lane-out" for thread in threading.enumerate()) - 1,
            "pins": slots.pins,
            "writing slots": slots.writing,
        }
        return {what: count for what, count in held.items() if count}


@asynccontextmanager
async def running_source_victim() -> AsyncIterator[SourceVictim]:
    """The witness keeps a session with one lane."""
    store = Store(StoreSettings(SLOTS * SLOT_BYTES, "unused"))
    filled(store, KEYS[:16])
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK)
    other = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", streams=1, settings=QUICK)
    await transport.serve(store)
    try:
        victim = SourceVictim(transport, store, other)
        await victim.witness()
        yield victim
    finally:
        await other.close()
        await transport.close()
        store.close()
