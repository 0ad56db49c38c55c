"""The gateway's end of the data plane: hostile workers answer its links and its streams."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from cluster.coordinator.workers import GenerationRequest, HandedBack, Leg
from cluster.dataplane.frames import PROTOCOL_VERSION, Challenge, FromWorker, Welcome
from cluster.dataplane.pool import WorkerPool
from cluster.errors import BatonError
from cluster.gateway.kv_index_feed import KvIndexFeed
from routing.index_blocks import BlockIndex
from tests.fuzz.frame_bytes import spoiled_frame
from tests.fuzz.peer import HostileServer, Peer
from tests.fuzz.typed import Known, Maker, encoded
from tests.unit.dataplane.peers import (
    DEADLINE_S,
    IDLE,
    ManualLegs,
    pool_settings,
    running_worker,
    until,
    worker_info,
)

STAY_S = 0.3
KNOWN = Known(
    {
        "stream": (1, 1, 0, 2),
        "items": (1, 1, 0, 2),
        "sequence": (0, 0, 1, 2, 3, 4),
        "protocol": (PROTOCOL_VERSION,),
        "stored": (b"\x01" * 8, b"\x02" * 16, b"\x01" * 7, b""),
        "removed": (b"", b"\x01" * 8, b"\x01" * 7),
        "index": (0, 0, 1, -1, 2**40),
        "node_id": ("node", "another"),
        "replica_id": ("w1", "another"),
    }
)


class HostileWorker(HostileServer):
    """Greets the gateway, mostly, and sends it whatever comes to mind."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._maker = Maker(rng, KNOWN, 0.003)
        self.sent = 0

    async def _talk(self, peer: Peer) -> None:
        await self._send(peer, Challenge(PROTOCOL_VERSION, b"n" * 32), 0.03)
        await peer.body()
        await self._send(peer, Welcome(worker_info("hostile")), 0.03)
        await self._send(peer, IDLE, 0.0)
        for _ in range(self._rng.choice((0, 1, 3, 10, 30))):
            await self._send(peer, self._maker.message(FromWorker), 0.02)
            if self._rng.random() < 0.2:
                await asyncio.sleep(0.01)

    async def _send(self, peer: Peer, message: object, share: float) -> None:
        self.sent += 1
        await peer.send(spoiled_frame(encoded(message), self._rng, share))


class GatewayVictim:
    """See `running_gateway_victim`."""

    name = "data plane, gateway"

    def __init__(self, pool: WorkerPool, index: BlockIndex, good: str, legs: ManualLegs) -> None:
        self._pool = pool
        self._index = index
        self._legs = legs
        self._listed = {"w1": good}
        self._count = 0

    async def attack(self, rng: random.Random) -> int:
        """See `Victim`."""
        self._count += 1
        name, worker = f"hostile {self._count}", HostileWorker(rng)
        self._listed[name] = await worker.listen()
        self._pool.update(self._listed)
        try:
            async with asyncio.timeout(STAY_S):
                await self._ask(name, rng.choice((1, 2, 40)))
        except (TimeoutError, BatonError, HandedBack):
            pass  # of a hostile worker
        finally:
            del self._listed[name]
            self._pool.update(self._listed)
            await worker.close()
        return worker.sent

    async def _ask(self, name: str, outputs: int) -> None:
        await self._pool.wait_for(lambda fleet: name in fleet.replicas, STAY_S)
        sampling = msgspec.msgpack.encode({"max_tokens": 8, "n": outputs})
        request = GenerationRequest(name, [5] * 8, sampling, max_tokens=8, outputs=outputs)
        stream = self._pool.open(name, Leg("decode", request, sampling, None, 60.0))
        try:
            while stream.open:
                await stream.next()
        finally:
            stream.close()

    async def witness(self) -> list[str]:
        """See `Victim`."""
        sampling = msgspec.msgpack.encode({"max_tokens": 8})
        request = GenerationRequest("witness", [5] * 8, sampling, max_tokens=8)
        try:
            stream = self._pool.open("w1", Leg("decode", request, sampling, None, DEADLINE_S))
            await until(lambda: "witness" in self._legs.legs)
            self._legs.legs.pop("witness").say(7, finish="stop")
            tokens = [token for delta in await stream.next() for token in delta.token_ids]
        except BatonError as error:
            return [f"the witness's request failed: {error!r}"]
        connects = self._pool._links["w1"].connects
        return [] if (tokens, connects) == ([7], 1) else [f"the witness got {tokens} and connected {connects} times"]

    def left(self) -> dict[str, object]:
        """See `Victim`."""
        self._index.check()
        statistics = self._index.statistics()
        held = {
            "links": len(self._pool._tasks) - 1,
            "streams": sum(len(link.streams) for link in self._pool._tasks),
            "places in the index": statistics.places,
        }
        return {what: count for what, count in held.items() if count}


@asynccontextmanager
async def running_gateway_victim() -> AsyncIterator[GatewayVictim]:
    """The witness's worker is driven by hand."""
    index = BlockIndex()
    async with running_worker("w1") as good, WorkerPool(pool_settings(), KvIndexFeed(index)) as pool:
        victim = GatewayVictim(pool, index, good.address, good.legs)
        pool.update(victim._listed)
        await pool.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), DEADLINE_S)
        yield victim
