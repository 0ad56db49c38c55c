"""Both ends of the data plane on real sockets, with legs the test drives by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.connection import ConnectionSettings, FrameConnection
from cluster.dataplane.frames import (
    PROTOCOL_VERSION,
    Challenge,
    Delta,
    FromGateway,
    Generate,
    Hello,
    Load,
    Role,
    TakeRole,
    Welcome,
    WorkerInfo,
    from_worker,
)
from cluster.dataplane.legs import NO_WORK, LegSink, LegWork
from cluster.dataplane.link import PoolSettings
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.server import ServerSettings, WorkerServer
from kvtransfer import auth

SECRET = b"secret of the tests"
MODEL = "model 1"
DEADLINE_S = 10.0
USUAL = ConnectionSettings()

IDLE = Load(
    running=0, waiting=0, held=0, queued_prefill_tokens=0, kv_usage=0.0, healthy=True, draining=False, counters={}
)


async def until(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; checks it once a turn of the loop."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # the conditions are of many kinds
            await asyncio.sleep(0)


def worker_info(replica_id: str = "w1", role: Role = "decode") -> WorkerInfo:
    return WorkerInfo(replica_id, role, "node", "fake", "tcp://store", "kv", 16, 4096, "epoch 1")


def leg(text: str = "r1", outputs: int = 1, token_ids: Any = (1, 2, 3), role: Role = "decode") -> Leg:
    sampling = msgspec.msgpack.encode({"max_tokens": 8})
    request = GenerationRequest(text, token_ids, sampling, max_tokens=8, outputs=outputs)
    return Leg(role, request, sampling, None, 60.0)


@dataclass(slots=True)
class ManualLeg:
    """A leg that does what the test says."""

    generate: Generate
    sink: LegSink
    aborted: bool = False
    lost_source: bool = False
    work: LegWork = NO_WORK

    def abort(self) -> None:
        self.aborted = True

    def source_lost(self) -> None:
        self.lost_source = True

    def say(self, *token_ids: int, index: int = 0, finish: str | None = None) -> None:
        self.sink.delta(Delta(index, list(token_ids), "".join(f" {i}" for i in token_ids), finish))
        if finish is not None:
            self.sink.end()


@dataclass(slots=True)
class ManualLegs:
    """A `LegHandler` that only notes what it is asked."""

    legs: dict[str, ManualLeg] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    orders: list[TakeRole] = field(default_factory=list)

    def start(self, generate: Generate, sink: LegSink) -> ManualLeg:
        made = self.legs[generate.request_id] = ManualLeg(generate, sink)
        return made

    def let_go(self, handoff_id: str) -> None:
        self.gone.append(handoff_id)

    def take_role(self, order: TakeRole) -> None:
        self.orders.append(order)

    async def started(self, request_id: str) -> ManualLeg:
        await until(lambda: request_id in self.legs)
        return self.legs[request_id]


@dataclass(frozen=True, slots=True)
class RunningWorker:
    server: WorkerServer
    legs: ManualLegs
    address: str


@asynccontextmanager
async def running_worker(
    replica_id: str = "w1", connection: ConnectionSettings = USUAL, **settings: Any
) -> AsyncIterator[RunningWorker]:
    legs = ManualLegs()
    server = WorkerServer(
        ServerSettings(worker_info(replica_id), SECRET, MODEL, connection, **settings), legs, kv_snapshot=None
    )
    address = await server.listen("127.0.0.1")
    server.publish_load(IDLE)
    try:
        yield RunningWorker(server, legs, address)
    finally:
        await server.close()


def pool_settings(secret: bytes = SECRET, model: str = MODEL, connection: ConnectionSettings = USUAL) -> PoolSettings:
    return PoolSettings("g1", secret, model, connection)


async def connected(pool: WorkerPool, *workers: RunningWorker) -> None:
    """Tell the pool of the workers and wait until it may use them."""
    pool.update({worker.server.settings.worker.replica_id: worker.address for worker in workers})
    await pool.wait_for(lambda fleet: sum(r.ready for r in fleet.replicas.values()) == len(workers), DEADLINE_S)


class RawGateway:
    """A gateway that sends exactly what the test says."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.lost_reason: str | None = None
        self.connection: FrameConnection

    def opened(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, frame: Any) -> None:
        self.frames.append(frame)

    def idle(self) -> None:
        """Says nothing by itself."""

    def lost(self, reason: str) -> None:
        self.lost_reason = reason

    @classmethod
    async def connect(cls, address: str) -> "RawGateway":
        raw = cls()
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: FrameConnection(from_worker, raw, ConnectionSettings()), host, int(port))
        await until(lambda: bool(raw.frames))
        return raw

    def hello(self, secret: bytes = SECRET, model: str = MODEL, protocol: int = PROTOCOL_VERSION) -> None:
        challenge = self.frames[0]
        assert isinstance(challenge, Challenge)
        self.send(Hello(protocol, "raw", model, auth.prove(secret, challenge.nonce)))

    async def greet(self) -> None:
        self.hello()
        await until(lambda: any(isinstance(frame, Welcome) for frame in self.frames))

    def send(self, frame: FromGateway) -> None:
        self.connection.send(frame)

    async def gone(self) -> str:
        await until(lambda: self.lost_reason is not None)
        assert self.lost_reason is not None
        return self.lost_reason
