"""All workers of one gateway: who is connected, how busy they are, and streams to them.

Owns one link and one task for each listed worker. The list comes from discovery (`update`); being listed is not being
ready: a replica is ready while it is connected, healthy, not draining, and its load is at most `dead_s` old. One that
is not listed any more stays known, and what its node's store holds with it, until its last stream has ended.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cluster.coordinator.workers import Leg
from cluster.dataplane.frames import Handoff, Load, TakeRole, WorkerInfo
from cluster.dataplane.kv_inbox import KvListener
from cluster.dataplane.link import LinkObserver, PoolSettings, WorkerLink
from cluster.dataplane.stream import WorkerStream
from cluster.errors import ReplicaLost
from routing.fleet import Fleet, Replica, ReplicaLoad, Role

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """One worker as this gateway sees it, for people."""

    replica_id: str
    address: str
    connected: bool
    streams: int
    connects: int
    last_error: str


class WorkerPool:
    """Implements `cluster.coordinator.workers.Workers`. Made and closed on a running loop."""

    def __init__(self, settings: PoolSettings, kv: KvListener | None = None) -> None:
        self._settings = settings
        self._observer = LinkObserver(self._changed, kv)
        self._links: dict[str, WorkerLink] = {}
        self._leaving: dict[str, WorkerLink] = {}
        self._tasks: dict[WorkerLink, asyncio.Task[None]] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._fleet = Fleet({})
        self._fleet_until = float("-inf")

    def __repr__(self) -> str:
        connected = sum(link.info is not None for link in self._links.values())
        return f"<WorkerPool connected={connected} listed={len(self._links)} links={len(self._tasks)}>"

    async def __aenter__(self) -> "WorkerPool":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every link; open streams raise `ReplicaLost`."""
        for link in self._links.values():
            link.retire()
        self._links.clear()
        self._leaving.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._changed()

    # Who is there

    def update(self, addresses: Mapping[str, str]) -> None:
        """The replicas that exist now, by id, with their addresses (`host:port`).

        One that is gone, or has moved, gets no new streams and is let go when its streams have ended.
        """
        for replica_id, link in list(self._links.items()):
            if addresses.get(replica_id) != link.address:
                del self._links[replica_id]
                link.retire()
                if link.info is not None and link.streams:
                    self._leaving[replica_id] = link
                else:
                    link.forget()
        for replica_id, address in addresses.items():
            if replica_id not in self._links:
                self._start(WorkerLink(replica_id, address, self._settings, self._observer))
        self._changed()

    def _start(self, link: WorkerLink) -> None:
        if (before := self._leaving.pop(link.replica_id, None)) is not None:
            before.forget()
        self._links[link.replica_id] = link
        task = asyncio.get_running_loop().create_task(link.run(), name=f"link to {link.replica_id}")
        self._tasks[link] = task
        task.add_done_callback(lambda done: self._ended(link, done))

    def _ended(self, link: WorkerLink, task: "asyncio.Task[None]") -> None:
        del self._tasks[link]
        if self._leaving.get(link.replica_id) is link:
            del self._leaving[link.replica_id]
            self._changed()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("letting go of worker %s broke", link.replica_id, exc_info=error)

    # Workers

    def fleet(self) -> Fleet:
        """See the seam."""
        now = asyncio.get_running_loop().time()
        if now >= self._fleet_until:
            self._fleet, self._fleet_until = self._snapshot(now)
        return self._fleet

    def _snapshot(self, now: float) -> tuple[Fleet, float]:
        """The fleet, and until when it stays true if nothing is reported."""
        dead_s = self._settings.connection.dead_s
        replicas: dict[str, Replica] = {}
        until = float("inf")
        for link in self._known():
            if link.info is not None:
                fresh_until = link.load_at + dead_s
                fit = now < fresh_until and link.replica_id in self._links
                replicas[link.replica_id] = _replica(link.replica_id, link.info, link.load, fit)
                if fit:
                    until = min(until, fresh_until)
        return Fleet(replicas), until

    def _known(self) -> Iterator[WorkerLink]:
        yield from self._leaving.values()
        yield from self._links.values()

    def info(self, replica_id: str) -> WorkerInfo:
        """See the seam."""
        link = self._links.get(replica_id) or self._leaving.get(replica_id)
        if link is None or link.info is None:
            raise ReplicaLost(f"worker {replica_id} is not connected")
        return link.info

    def store_on(self, node_id: str, kv_fingerprint: str) -> str:
        """See the seam."""
        infos = (link.info for link in self._known() if link.info is not None)
        stores = (i.store_address for i in infos if (i.node_id, i.kv_fingerprint) == (node_id, kv_fingerprint))
        return next(filter(None, stores), "")

    def open(self, replica_id: str, leg: Leg) -> WorkerStream:
        """See the seam. Raises `InvalidRequest` as well, for token ids the wire cannot carry."""
        link = self._links.get(replica_id)
        if link is None:
            raise ReplicaLost(f"worker {replica_id} is not listed any more")
        return link.open(leg)

    def let_go(self, replica_id: str, handoff: Handoff) -> None:
        """See the seam."""
        stores = {link: link.info.store_address for link in self._known() if link.info is not None}
        told = [link for link in stores if link.replica_id == replica_id] or [
            link for link, address in stores.items() if address == handoff.source
        ]
        if told:
            told[0].let_go(handoff.handoff_id)

    # For the pool controller

    def infos(self) -> list[WorkerInfo]:
        """Of every connected worker."""
        return [link.info for link in self._links.values() if link.info is not None]

    def take_role(self, replica_id: str, order: TakeRole) -> None:
        """Lend a worker; nothing happens where it is not connected any more."""
        link = self._links.get(replica_id)
        if link is not None:
            link.take_role(order)

    # For metrics and readiness

    def loads(self) -> dict[str, Load]:
        """The latest load of each connected worker."""
        return {link.replica_id: link.load for link in self._known() if link.load is not None}

    def nodes(self) -> dict[str, str]:
        """The node of each connected worker."""
        return {link.replica_id: link.info.node_id for link in self._known() if link.info is not None}

    def statistics(self) -> list[LinkStatistics]:
        """Every link, also those of workers that are not listed any more but still have streams."""
        return [
            LinkStatistics(
                link.replica_id, link.address, link.info is not None, len(link.streams), link.connects, link.last_error
            )
            for link in self._tasks
        ]

    async def wait_for(self, predicate: Callable[[Fleet], bool], deadline_s: float) -> None:
        """Return when the fleet satisfies `predicate`. Raises `TimeoutError` after `deadline_s` seconds."""
        async with asyncio.timeout(deadline_s):
            while not predicate(self.fleet()):
                await self._next_change()

    async def _next_change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _changed(self) -> None:
        self._fleet_until = float("-inf")
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _replica(replica_id: str, info: WorkerInfo, load: Load | None, fit: bool) -> Replica:
    ready = load is not None and fit and load.healthy and not load.draining
    return Replica(
        replica_id=replica_id,
        role=Role(info.role),
        node_id=info.node_id,
        zone=info.zone,
        kv_fingerprint=info.kv_fingerprint,
        block_size_tokens=info.block_size_tokens,
        max_model_len=info.max_model_len,
        kv_blocks=info.kv_blocks,
        ready=ready,
        model_identity=info.model_identity,
        load=ReplicaLoad() if load is None else _replica_load(load),
    )


def _replica_load(load: Load) -> ReplicaLoad:
    return ReplicaLoad(
        running=load.running,
        waiting=load.waiting,
        held=load.held,
        queued_prefill_tokens=load.queued_prefill_tokens,
        kv_usage=load.kv_usage,
        others_requests=load.others_requests,
        others_prefill_tokens=load.others_prefill_tokens,
    )
