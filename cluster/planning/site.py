"""A worker where it stands: driven through virtual time, reporting its load, telling what its cache holds.

Whoever sent a job is told through `Listener`. A killed site tells nothing any more.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.planning.device_cache import CacheChanges
from cluster.planning.events import Events
from cluster.planning.host_cache import HostCache
from cluster.planning.job import Job
from cluster.planning.link import Link
from cluster.planning.load_reports import LoadReports
from cluster.planning.outstanding import Outstanding
from cluster.planning.settings import NetworkSettings, WorkerSettings
from cluster.planning.step import Load, StepEnd
from cluster.planning.worker import Worker
from routing.fleet import Replica, ReplicaLoad
from routing.index import Tier

KV_FINGERPRINT = "simulated"
"""All workers of a simulation can exchange blocks."""


class Listener(Protocol):
    """Who hears what happens at a site, at the time it happens."""

    def step_ended(self, site: "Site", end: StepEnd) -> None:
        """A step ended; `end` says what it brought."""
        ...

    def cache_changed(self, site: "Site", tier: Tier, changes: CacheChanges) -> None:
        """The worker has told what changed in its device or its node's memory."""
        ...


class Site:
    """Owns one worker, its schedule and its reports to `gateways` gateways. Its `role` may be changed at any time."""

    def __init__(
        self,
        settings: WorkerSettings,
        network: NetworkSettings,
        events: Events,
        listener: Listener,
        worker: Worker,
        gateways: int,
    ) -> None:
        self.settings = settings
        self.role = settings.role
        self.worker = worker
        self.ingress = Link(network.transfer_bytes_per_s)
        self.outstanding = Outstanding(gateways)
        self.alive = True
        self._network = network
        self._events = events
        self._listener = listener
        self._bus = Link(1.0)
        self._reports = [LoadReports(network.report_period_s, self._state(g)) for g in range(gateways)]
        self._seen: dict[int, Replica] = {}
        self._due = 0

    def __repr__(self) -> str:
        return f"<Site {self.settings.replica_id} running={self.worker.running} waiting={self.worker.waiting}>"

    def replica(self, gateway: int) -> Replica:
        """The worker as a gateway knows it."""
        load = self._reports[gateway].last(self._events.now)
        seen = self._seen.get(gateway)
        if seen is None or seen.load is not load or seen.role is not self.role:
            seen = self._seen[gateway] = self._replica(load)
        return seen

    def expect(self, job: Job) -> None:
        """A job was sent here; it may wait for its blocks before it is submitted."""
        self._before_change()
        self.outstanding.sent(job)

    def receive(self, keys: Sequence[int]) -> None:
        """Blocks of another node have come into the memory of this one."""
        if changes := self.worker.receive(keys):
            self._tell(Tier.HOST, changes)

    def submit(self, job: Job) -> None:
        """The engine gets an expected job."""
        self._before_change()
        self.worker.add(job)
        self._go_on()

    def cancel(self, job: Job) -> None:
        """Nobody wants the job any more, wherever it is."""
        self._before_change()
        self.outstanding.ended(job)
        self.worker.end(job)
        self._go_on()

    def kill(self) -> list[Job]:
        """The worker dies. Returns the jobs it had been sent."""
        self.alive = False
        self._due += 1
        return self.outstanding.jobs()

    def _go_on(self) -> None:
        """Something changed: let it be part of the next step, with all else that comes at this moment."""
        self.worker.interrupt(self._events.now)
        if self.worker.step is not None:
            self._schedule(self.worker.step.ends_at, self._end_step)
        else:
            self._schedule(self._events.now, self._begin_step)

    def _begin_step(self) -> None:
        for load in self.worker.begin(self._events.now):
            self._load(load)
        if self.worker.step is not None:
            self._schedule(self.worker.step.ends_at, self._end_step)

    def _schedule(self, time: float, action: Callable[[], None]) -> None:
        """What the worker does next; replaces what it was to do."""
        self._due += 1
        due = self._due

        def act() -> None:
            if due == self._due:
                action()

        self._events.at(time, act)

    def _end_step(self) -> None:
        self._before_change()
        end = self.worker.end_step()
        for job in end.completed:
            self.outstanding.prompt_done(job)
        for job in end.done:
            self.outstanding.ended(job)
        for tier, changes in ((Tier.DEVICE, end.device), (Tier.HOST, end.host)):
            if changes:
                self._tell(tier, changes)
        self._go_on()
        self._listener.step_ended(self, end)

    def _tell(self, tier: Tier, changes: CacheChanges) -> None:
        def tell() -> None:
            if self.alive:
                self._listener.cache_changed(self, tier, changes)

        self._events.at(self._events.now + self._network.event_delay_s, tell)

    def _load(self, load: Load) -> None:
        def loaded() -> None:
            if self.alive:
                self._before_change()
                self.worker.loaded(load)
                self._go_on()

        self._events.at(self._bus.busy(load.seconds, self._events.now), loaded)

    def _before_change(self) -> None:
        for reports in self._reports:
            reports.before_change(self._events.now)

    def _state(self, gateway: int) -> Callable[[], ReplicaLoad]:
        def state() -> ReplicaLoad:
            worker, others = self.worker, self.outstanding.of_others(gateway)
            return ReplicaLoad(
                running=worker.running,
                waiting=worker.waiting,
                held=len(self.outstanding) - worker.running - worker.waiting,
                queued_prefill_tokens=worker.queued_prefill_tokens(),
                kv_usage=worker.device.usage,
                others_requests=others.requests,
                others_prefill_tokens=others.prefill_tokens,
            )

        return state

    def _replica(self, load: ReplicaLoad) -> Replica:
        engine = self.settings.engine
        return Replica(
            replica_id=self.settings.replica_id,
            role=self.role,
            node_id=self.settings.node_id,
            kv_fingerprint=KV_FINGERPRINT,
            block_size_tokens=engine.block_size_tokens,
            max_model_len=engine.max_model_len,
            kv_blocks=engine.device_blocks,
            load=load,
        )


def build_worker(settings: WorkerSettings, number: int, hosts: dict[str, HostCache]) -> Worker:
    """The `number`-th worker of a cluster; `hosts` are the host tiers by node, added to where one is missing."""
    host: HostCache | None = None
    if settings.engine.host_blocks:
        host = hosts.setdefault(settings.node_id, HostCache(settings.engine.host_blocks))
    return Worker(settings.engine, first_own_key=number << 24, host=host)
