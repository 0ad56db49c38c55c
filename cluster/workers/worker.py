"""One worker: an engine, its node's store, and a server for gateways. Knows neither Ray nor which engine it is.

Life: `start` → serving ⇄ draining → `close`. Everything it runs is a task of one TaskGroup, which `close` ends and
awaits. An engine that cannot step makes the worker unhealthy, not dead: its legs fail, so that they go on elsewhere,
and its host (Serve) decides what becomes of it.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.frames import KvTier, Load, WorkerInfo
from cluster.dataplane.server import ServerSettings, WorkerServer
from cluster.engines.engine import BlocksChanged, Engine
from cluster.errors import EngineFailed
from cluster.workers.drain import Drain
from cluster.workers.engine_watch import EngineWatch
from cluster.workers.kv_events import KvBlocks, KvChanges, idle_hashes
from cluster.workers.leg import LegServices
from cluster.workers.legs import Legs
from cluster.workers.lent_role import LentRole
from cluster.workers.load import LegCounters, WorkerState, build_load
from cluster.workers.pulse import PulseSettings
from cluster.workers.reporter import LoadReporter
from cluster.workers.store_link import StoreLink
from kvtransfer.protocol import Watched
from routing.index import Tier

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Who the worker is and what it allows. Seconds.

    While it drains, legs may end for `finish_s`; then others may take them. One that leaves waits for both, `leave_s`.
    """

    info: WorkerInfo
    secret: bytes = field(repr=False)
    model_fingerprint: str
    listen_host: str
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    finish_s: float = 60.0
    leave_s: float = 600.0
    health: PulseSettings = field(default_factory=PulseSettings)


class Worker:
    """Owns `engine` and `store` from `start` on."""

    def __init__(self, settings: WorkerSettings, engine: Engine, store: StoreLink | None) -> None:
        self.info = settings.info
        self._settings = settings
        self._engine = engine
        self._store = store
        self._counters = LegCounters()
        self._blocks = KvBlocks(settings.info.block_size_tokens, idle_hashes(settings.info.kv_blocks))
        self._drain = Drain(self._report_now)
        self.finish_s = settings.finish_s
        self.role = LentRole(settings.info.role, self._role_changed, time.time)
        self._task: asyncio.Task[None] | None = None
        self.address = ""

    def __repr__(self) -> str:
        return f"<Worker {self.info.replica_id} {self.info.role} at {self.address or 'nowhere'}>"

    async def start(self) -> str:
        """Serve; the address for gateways, `host:port`."""
        listening = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(listening), name=f"worker {self.info.replica_id}")
        await asyncio.wait({self._task, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            await self._task
        self.address = listening.result()
        return self.address

    async def _run(self, listening: "asyncio.Future[str]") -> None:
        async with asyncio.TaskGroup() as tasks:
            services = LegServices(self._engine, self._store, tasks, self._counters, self._blocks)
            self._legs = Legs(services, self._drain, self.role)
            self._watch = EngineWatch(self._engine, self._settings.health, self._note_health)
            server = self._server = WorkerServer(self._server_settings(), self._legs, self._tier_keys)
            try:
                address = await server.listen(self._settings.listen_host)
                if self._store is not None:
                    self._store.moved = self._store_moved
                    self._store.measured = self._legs.changed.set
                    self._store.watched = self._store_holds
                    tasks.create_task(self._store.run(), name="store link")
                tasks.create_task(self._publish_blocks(), name="kv events")
                tasks.create_task(self._watch.run(), name="health")
                reporter = LoadReporter(self.load, server.publish_load, self._legs.changed)
                tasks.create_task(reporter.run(), name="load reports")
                listening.set_result(address)
                await asyncio.get_running_loop().create_future()
            finally:
                await server.close()

    def _server_settings(self) -> ServerSettings:
        return ServerSettings(
            worker=self.info,
            secret=self._settings.secret,
            model_fingerprint=self._settings.model_fingerprint,
            connection=self._settings.connection,
        )

    # What it reports

    def load(self) -> Load:
        """How busy it is now."""
        state = WorkerState(
            held=self._legs.held,
            healthy=not self._watch.ill,
            draining=self._drain.draining,
            handing_back=self._drain.handing_back,
            counters={
                **self._counters.snapshot(),
                "kv_events_unplaced": self._blocks.unplaced_events,
                "connections_refused": self._server.refusals.count,
            },
            store=self._store.latest if self._store is not None else None,
            block_bytes=self._store.block_bytes if self._store is not None else 0,
        )
        return build_load(self._engine.statistics(), state)

    async def check_health(self) -> None:
        """Raises `EngineFailed` when the engine cannot step or the worker's own tasks have ended. Answers at once."""
        if self._task is None or self._task.done():
            raise EngineFailed("the worker is not running")
        if self._watch.ill:
            raise EngineFailed(self._watch.ill)

    def _note_health(self) -> None:
        """Tell the gateways first: what fails is then sent to others."""
        ill = self._legs.ill = self._watch.ill
        self._server.publish_load(self.load())
        self._legs.changed.set()
        if ill:
            log.error("the engine of %s cannot step: %s", self.info.replica_id, ill)
            self._legs.fail(ill)
        else:
            log.warning("the engine of %s steps again", self.info.replica_id)

    async def _publish_blocks(self) -> None:
        try:
            async for events in self._engine.events():
                self._publish(self._blocks.apply(events))
        except EngineFailed as error:
            log.error("no more KV events of %s: %s", self.info.replica_id, error)
            self._publish(self._blocks.apply([BlocksChanged("cleared")]))

    def _store_holds(self, watched: Watched) -> None:
        committed = dict(zip(watched.committed, watched.labels, strict=True))
        self._publish(self._blocks.follow(watched.snapshot, committed, watched.gone))

    def _publish(self, changes: KvChanges) -> None:
        if changes.device:
            self._server.publish_kv("device", changes.device.stored, changes.device.removed)
        if changes.host:
            self._server.publish_kv("host", changes.host.stored, changes.host.removed)
        if changes.labels and self._store is not None:
            self._store.label(changes.labels)

    def _tier_keys(self, tier: KvTier) -> Collection[int]:
        return self._blocks.snapshot(Tier(tier))

    def _store_moved(self, address: str) -> None:
        self.info = msgspec.structs.replace(self.info, store_address=address)
        self._server.update_worker(self.info)

    def _role_changed(self) -> None:
        role = self.role
        self.info = msgspec.structs.replace(
            self.info, role=role.role, home=role.home, role_epoch=role.epoch, pinned=role.pinned
        )
        self._server.update_worker(self.info)
        log.info("worker %s: %s", self.info.replica_id, role.history[-1])

    # The end

    @property
    def live_legs(self) -> int:
        """Legs that have not ended."""
        return len(self._legs)

    def drain(self, finish_s: float | None = None) -> None:
        """Out of service until `undrain`: no new legs, and after `finish_s` the live ones may go on elsewhere."""
        self._drain.begin(self.finish_s if finish_s is None else finish_s)

    def undrain(self) -> None:
        """In service again."""
        self._drain.undo()

    async def leave(self) -> bool:
        """Drain and wait for the live legs, up to `leave_s`. False when some are still live: nobody could take them."""
        if not self._drain.handing_back:
            self.drain(min(self.finish_s, self._settings.leave_s / 2))
        return await self._legs.idle(self._settings.leave_s)

    def _report_now(self) -> None:
        self._server.publish_load(self.load())

    async def close(self) -> None:
        """End everything, the engine last. May be called twice."""
        task, self._task = self._task, None
        self._drain.close()
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("worker %s had failed", self.info.replica_id, exc_info=error)
            await self._engine.close()
