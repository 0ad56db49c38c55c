"""Workers in this process, in virtual time: production legs and engine watch over simulated engines, no sockets.

Implements the coordinator's seam. There is no store: every decode worker computes its prompts itself.
"""

import asyncio
from pathlib import Path

from cluster.coordinator.workers import Leg
from cluster.dataplane.frames import Delta, FailureKind, Handoff, WorkerInfo
from cluster.dataplane.leg_errors import ERRORS
from cluster.dataplane.link import ASK_AGAIN_S
from cluster.dataplane.stream import WorkerStream, opening
from cluster.engines.simulated.engine import SimulatedEngine
from cluster.engines.simulated.settings import SimulatedSettings
from cluster.errors import ReplicaLost
from cluster.workers.drain import Drain
from cluster.workers.engine_watch import EngineWatch
from cluster.workers.kv_events import KvBlocks
from cluster.workers.leg import LegServices
from cluster.workers.legs import Legs
from cluster.workers.lent_role import LentRole
from cluster.workers.load import LegCounters
from cluster.workers.pulse import PulseSettings
from routing.fleet import Fleet, Replica, Role

BLOCK = 16


class NearWorker:
    """One decode worker. `run` until cancelled."""

    def __init__(self, name: str, engine: SimulatedEngine, health: PulseSettings, tasks: asyncio.TaskGroup) -> None:
        self.name = name
        self.engine = engine
        self.drain = Drain(self._note_drain)
        role = LentRole("decode", lambda: None, lambda: 0.0)
        self.legs = Legs(LegServices(engine, None, tasks, LegCounters(), KvBlocks(BLOCK)), self.drain, role)
        self.watch = EngineWatch(engine, health, self._note_health)
        self.ill = asyncio.Event()
        self.streams: list[WorkerStream] = []

    def _note_drain(self) -> None:
        """As a link does, each second."""
        self.streams = [stream for stream in self.streams if stream.open]
        if self.drain.handing_back and self.streams:
            for stream in self.streams:
                stream.hand_back()
            asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._note_drain)

    def _note_health(self) -> None:
        self.legs.ill = self.watch.ill
        if self.watch.ill:
            self.ill.set()
            self.legs.fail(self.watch.ill)

    def replica(self) -> Replica:
        """As gateways see it."""
        return Replica(
            self.name, Role.DECODE, "n1", "f", BLOCK, 2048, ready=not (self.watch.ill or self.drain.draining)
        )


class _Sink:
    """Delivers at once."""

    def __init__(self, stream: WorkerStream) -> None:
        self._stream = stream

    def delta(self, delta: Delta) -> None:
        if self._stream.open:
            self._stream.deliver(delta)

    def end(self) -> None:
        """The stream knows from its last delta."""

    def fail(self, kind: FailureKind, message: str) -> None:
        if self._stream.open:
            self._stream.fail(ERRORS[kind](message))


class NearWorkers:
    """All of them."""

    def __init__(self) -> None:
        self._workers: dict[str, NearWorker] = {}

    def __getitem__(self, name: str) -> NearWorker:
        return self._workers[name]

    def add(self, worker: NearWorker) -> None:
        """It serves from now on."""
        self._workers[worker.name] = worker

    def remove(self, name: str) -> None:
        """It is not listed any more."""
        del self._workers[name]

    # Workers

    def fleet(self) -> Fleet:
        return Fleet({name: worker.replica() for name, worker in self._workers.items()})

    def info(self, replica_id: str) -> WorkerInfo:
        if replica_id not in self._workers:
            raise ReplicaLost(f"{replica_id} is gone")
        return WorkerInfo(replica_id, "decode", "n1", "simulated", "", "f", BLOCK, 2048, "1")

    def store_on(self, node_id: str, kv_fingerprint: str) -> str:
        return ""

    def open(self, replica_id: str, leg: Leg) -> WorkerStream:
        if replica_id not in self._workers:
            raise ReplicaLost(f"{replica_id} is gone")
        running = None
        stream = WorkerStream(leg.outputs, lambda: running and running.abort(), lambda: None)
        running = self._workers[replica_id].legs.start(opening(0, leg), _Sink(stream))
        self._workers[replica_id].streams.append(stream)
        return stream

    def let_go(self, replica_id: str, handoff: Handoff) -> None:
        """There are no hand-offs."""


async def engine_of(model: Path) -> SimulatedEngine:
    """A small engine: 10 ms a step, 64 tokens of a prompt in one."""
    settings = SimulatedSettings(model, "near", 2048, BLOCK, device_blocks=256, max_batched_tokens=64)
    return await SimulatedEngine.create(settings)
