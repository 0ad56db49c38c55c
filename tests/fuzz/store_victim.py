"""The local protocol of a node's store, over its Unix socket, with another store to fetch from."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.auth import prove
from kvtransfer.checksum import block_checksum
from kvtransfer.greeting import PROTOCOL_VERSION, Challenge, Greet
from kvtransfer.protocol import Request
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.fuzz.frame_bytes import spoiled_frame
from tests.fuzz.peer import Peer
from tests.fuzz.typed import Known, Maker, encoded

SECRET = b"secret of the fuzzed store"
FINGERPRINT = "fp"
SLOT_BYTES = 4096
SLOTS = 24
KEYS = tuple(bytes([number]) * 32 for number in range(40))
OURS = tuple(b"the witness's" + bytes([number]) * 19 for number in range(2))
QUICK = TcpSettings(stall_s=1.0, quiesce_s=0.1, connect_s=1.0)


class StoreVictim:
    """See `running_store_victim`."""

    name = "store, local protocol"

    def __init__(self, server: StoreServer, witness: AsyncStoreClient, elsewhere: str) -> None:
        self._server = server
        self._witness = witness
        self._elsewhere = elsewhere
        self._owners = len(server.store._owners)
        self._known = Known(
            {
                "id": tuple(range(6)),
                "keys": KEYS,
                "labels": tuple(range(40)),
                "handoff_id": tuple(f"h{number}" for number in range(5)),
                "source": (server.address, elsewhere, elsewhere, "tcp://127.0.0.1:1", "nonsense", "tcp://[::1", ""),
                "deadline_s": (0.0, 0.02, 0.1, 0.3, -1.0, float("nan"), float("inf")),
                "wait_s": (0.0, 0.02, -1.0, float("nan"), float("inf")),
                "slot_bytes": (SLOT_BYTES, SLOT_BYTES, SLOT_BYTES, 0, -1, 2**40),
                "first_slot": (0, 5, SLOTS, -1, 2**62),
                "tenant": (b"", b"", b"t"),
                "checksums": (0, 1, 2**64 - 1),
            }
        )

    async def attack(self, rng: random.Random) -> int:
        """See `Victim`."""
        connecting = socket.socket(socket.AF_UNIX)
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, "\0" + self._server.socket_name)
        peer = Peer(*await asyncio.open_unix_connection(sock=connecting))
        challenge, sent = await peer.body(), 0
        if challenge is not None and rng.random() < 0.93:
            await peer.send(spoiled_frame(greeting(challenge, rng), rng, 0.06))
            sent += 1
        maker = Maker(rng, self._known, 0.005)
        for _ in range(rng.choice((0, 1, 5, 20, 60))):
            await peer.send(spoiled_frame(encoded(maker.message(Request)), rng, 0.02))
            sent += 1
        await peer.leave(rng)
        return sent

    async def witness(self) -> list[str]:
        """See `Victim`."""
        if self._witness.is_lost:
            return ["the witness lost its connection"]
        blocks = await self._witness.pin(OURS[:1])
        released = await self._witness.unpin(OURS[:1])
        for source in (self._elsewhere, self._server.address):  # to each of them a session stays open
            fetched = await self._witness.fetch("the witness's", [0], source, 5.0)
            await self._witness.release("the witness's")
            if fetched.outcome != "ready":
                return [f"the witness's fetch from {source} ended {fetched}"]
        return [] if (len(blocks), released) == (1, 1) else ["the witness's block is gone though it was pinned"]

    def left(self) -> dict[str, object]:
        """See `Victim`."""
        store = self._server.store
        store.check()
        slots = store.slot_statistics()
        held = {
            "connections": self._server.connections - 1,
            "pins": slots.pins - 1,
            "writing slots": slots.writing - 1,
            "waits": len(self._server._reception.tasks),
            "owners": len(store._owners) - self._owners,
        }
        return {what: count for what, count in held.items() if count}


def greeting(challenge: bytes, rng: random.Random) -> bytes:
    """What lets a peer in, mostly."""
    nonce = msgspec.msgpack.decode(challenge, type=Challenge).nonce
    secret = SECRET if rng.random() < 0.95 else b"another"
    version = PROTOCOL_VERSION if rng.random() < 0.98 else rng.choice((0, -1, 2**63))
    fingerprint = FINGERPRINT if rng.random() < 0.98 else "another"
    return encoded(Greet(version, fingerprint, rng.choice(("raw", "", "x" * 2000)), prove(secret, nonce)))


def filled(store: Store, keys: tuple[bytes, ...]) -> None:
    """Commit blocks under labels that are their numbers, for good."""
    arena = store.attach(SLOT_BYTES)
    owner = store.open_owner("the good engine")
    for key, slot in zip(keys, store.reserve(owner, keys).slots, strict=True):
        assert slot is not None
        arena.slot(slot)[:] = (key * SLOT_BYTES)[:SLOT_BYTES]
        store.commit(owner, [key], [block_checksum(arena.slot(slot))])
    store.label(keys, range(len(keys)))


@asynccontextmanager
async def running_store_victim() -> AsyncIterator[StoreVictim]:
    """Everything is closed afterwards."""
    elsewhere = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK)
    other = Store(StoreSettings(SLOTS * SLOT_BYTES, "unused"))
    filled(other, KEYS[:16])
    await elsewhere.serve(other)
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK)
    settings = StoreSettings(
        SLOTS * SLOT_BYTES, f"baton-fuzz-{random.randrange(2**40):x}", handoff_ttl_s=0.3, sweep_s=0.05, max_wait_s=5.0
    )
    server = StoreServer(settings, SECRET, FINGERPRINT, transport)
    await server.start()
    witness = await AsyncStoreClient.connect(server.socket_name, FINGERPRINT, "witness", SECRET, 10.0)
    try:
        await witness.attach(SLOT_BYTES)
        await witness.reserve(OURS)
        await witness.commit(OURS[:1], [0])
        await witness.pin(OURS[:1])
        yield StoreVictim(server, witness, elsewhere.address)
    finally:
        await witness.close()
        await server.close()
        await elsewhere.close()
        other.close()
