"""Two nodes with a bad network between them, which is then cut and mended: nothing is wrong, and nothing hangs."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.frames import Delta
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.server import ServerSettings, WorkerServer
from cluster.errors import ReplicaLost
from kvtransfer.checksum import block_checksum
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.tls import Identity
from kvtransfer.transport import HandoffState, PullResult
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.support.authority import Authority
from tests.support.networks import Node, Wire, can_have_networks
from tests.unit.dataplane.peers import IDLE, MODEL, SECRET, ManualLegs, leg, pool_settings, worker_info

WITHOUT = can_have_networks()
pytestmark = [pytest.mark.alone, pytest.mark.skipif(WITHOUT != "", reason=WITHOUT)]

DELAY_S, LOSS = 0.010, 0.01
SLOT_BYTES, BLOCKS = 64 * 1024, 48
KEYS = [bytes([i]) * 32 for i in range(BLOCKS)]
DELTAS = 50

CONNECT_S, DEAD_S, STALL_S = 3.0, 3.0, 2.0
NOTICED_S = 10.0
"""By when both ends of whatever is under way when the wire is cut have noticed. More than any of the bounds above."""

PATIENCE_S = 30.0


def content(key: bytes) -> bytes:
    return key * (SLOT_BYTES // len(key))


def new_store() -> Store:
    store = Store(StoreSettings(BLOCKS * SLOT_BYTES, "unused"))
    store.attach(SLOT_BYTES)
    return store


class Far:
    """A worker's door, and a store with blocks of a hand-off `h`."""

    def __init__(self, tls: Identity | None) -> None:
        self.legs = ManualLegs()
        self.store = new_store()
        self._tls = tls
        self._stack = AsyncExitStack()

    async def start(self, host: str) -> None:
        info = worker_info()
        settings = ConnectionSettings(connect_s=CONNECT_S, ping_s=0.5, dead_s=DEAD_S, tls=self._tls)
        self.server = WorkerServer(ServerSettings(info, SECRET, MODEL, settings), self.legs)
        self.address = await self.server.listen(host)
        self._stack.push_async_callback(self.server.close)
        network = TcpSettings(connect_s=CONNECT_S, stall_s=STALL_S, tls=self._tls)
        self.transport = TcpTransport(SECRET, "fp", host, settings=network)
        await self.transport.serve(self.store)
        self._stack.push_async_callback(self.transport.close)
        owner = self.store.open_owner()
        self.store.announce(owner, "h", KEYS)
        assert self.store.arena is not None
        for key, slot in zip(KEYS, self.store.reserve(owner, KEYS).slots, strict=True):
            assert slot is not None
            self.store.arena.slot(slot)[:] = content(key)
            self.store.commit(owner, [key], [block_checksum(self.store.arena.slot(slot))])

    async def report(self) -> None:
        """As a worker does, all the time: its sign of life."""
        while True:
            self.server.publish_load(IDLE)
            await asyncio.sleep(0.2)

    async def say(self, request: str, first: int, last: int) -> None:
        running = await self.legs.started(request)
        for token in range(first, last):
            running.say(token, finish="stop" if token == DELTAS - 1 else None)
            await asyncio.sleep(0.002)

    async def close(self) -> None:
        await self._stack.aclose()


class Near:
    """A gateway's workers, and stores that pull."""

    def __init__(self, tls: Identity | None) -> None:
        self._tls = tls

    async def start(self) -> None:
        settings = ConnectionSettings(connect_s=CONNECT_S, ping_s=0.5, dead_s=DEAD_S, tls=self._tls)
        self.pool = WorkerPool(pool_settings(connection=settings))
        network = TcpSettings(connect_s=CONNECT_S, stall_s=STALL_S, tls=self._tls)
        self.transport = TcpTransport(SECRET, "fp", "127.0.0.1", settings=network)

    async def pull(self, address: str) -> PullResult:
        """Into an empty store; every block that it has then is right."""
        store = new_store()
        sink = PullSink(store)
        result = await self.transport.pull(address, "h", sink, PATIENCE_S)
        sink.close()
        store.check()
        arena, reader = store.arena, store.open_owner()
        assert arena is not None
        found = store.pin(reader, KEYS)
        assert [bytes(arena.slot(block.slot)) for block in found] == [content(key) for key in KEYS[: len(found)]]
        assert len(found) == BLOCKS or result.state is not HandoffState.READY
        return result

    async def connected(self) -> None:
        await self.pool.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), PATIENCE_S)

    async def read(self, request: str) -> list[int]:
        """The tokens of a stream, to its end."""
        stream, tokens = self.pool.open("w1", leg(request)), list[int]()
        while len(tokens) < DELTAS:
            for delta in await stream.next():
                assert isinstance(delta, Delta)
                tokens += delta.token_ids
        return tokens

    async def close(self) -> None:
        await self.pool.close()
        await self.transport.close()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    near, far = Node("10.77.0.1"), Node("10.77.0.2")
    yield near, far
    near.close()
    far.close()


@pytest.mark.parametrize("secured", ["in the clear", "tls"])
def test_a_bad_wire_that_is_cut_and_mended_costs_time_only(
    secured: str, nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    identity = Identity(Authority(tmp_path).issue()) if secured == "tls" else None
    there, here = nodes[1], nodes[0]
    far, near = Far(identity), Near(identity)
    with Wire(nodes, DELAY_S, LOSS) as wire:
        there.do(far.start(there.address), PATIENCE_S)
        reports = there.spawn(far.report())
        here.do(near.start(), PATIENCE_S)
        here.do(_listed(near, far), PATIENCE_S)
        _all_works(here, there, near, far, "before")
        lost_before = wire.lost

        reading = here.spawn(near.read("cut"))
        there.do(far.say("cut", 0, DELTAS // 2), PATIENCE_S)
        pulling = here.spawn(near.pull(far.transport.address))
        wire.is_cut = True
        began = time.monotonic()
        with pytest.raises(ReplicaLost):
            reading.result(NOTICED_S)
        assert pulling.result(NOTICED_S).state is not HandoffState.READY
        assert here.do(near.pull(far.transport.address), NOTICED_S).state is HandoffState.FAILED
        assert time.monotonic() - began < 2 * NOTICED_S
        there.do(_forgotten(far), NOTICED_S)

        wire.is_cut = False
        here.do(near.connected(), PATIENCE_S)
        _all_works(here, there, near, far, "after")
        assert lost_before > 0
        here.do(near.close(), PATIENCE_S)
        reports.cancel()
        there.do(_forgotten(far), NOTICED_S)
        there.do(far.close(), PATIENCE_S)
    far.store.check()
    assert far.store.slot_statistics().writing == 0


def _all_works(here: Node, there: Node, near: Near, far: Far, request: str) -> None:
    saying = there.spawn(far.say(request, 0, DELTAS))
    assert here.do(near.read(request), PATIENCE_S) == list(range(DELTAS))
    saying.result(PATIENCE_S)
    assert here.do(near.pull(far.transport.address), PATIENCE_S).state is HandoffState.READY


async def _listed(near: Near, far: Far) -> None:
    near.pool.update({"w1": far.address})
    await near.connected()


async def _forgotten(far: Far) -> None:
    """The far side, too, has noticed that it talks to nobody."""
    while far.server.streams or far.transport.accepted:  # noqa: ASYNC110  # nobody announces it
        await asyncio.sleep(0.05)
