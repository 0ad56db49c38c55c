"""Has the pool controller decide, and tells workers what it decided.

Every gateway sees all reports; the one of rank 0 decides. Nothing is lost with it: who takes over reads the roles from
the workers, and an order that crosses another one is passed by there (`cluster.workers.lent_role`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.dataplane.frames import TakeRole, WorkerInfo
from cluster.pools.controller import Change, PoolController
from cluster.pools.member import Member
from cluster.pools.needs import Needs
from routing.fleet import Fleet, Role

log = logging.getLogger("ray.serve")


class LendableWorkers(Protocol):
    """The workers this gateway is connected to. Real: `cluster.dataplane.pool.WorkerPool`."""

    def fleet(self) -> Fleet:
        """What they report."""
        ...

    def infos(self) -> Sequence[WorkerInfo]:
        """What they are."""
        ...

    def take_role(self, replica_id: str, order: TakeRole) -> None:
        """Tell one what to do."""
        ...


class PoolKeeper:
    """Owns the controller. `decides` says whether it is this gateway that does; `changes` counts by new role."""

    def __init__(
        self, workers: LendableWorkers, controller: PoolController, decides: Callable[[], bool], interval_s: float
    ) -> None:
        self.changes: Counter[Role] = Counter()
        self._workers = workers
        self._controller = controller
        self._decides = decides
        self._interval_s = interval_s

    @property
    def needs(self) -> Needs:
        """What the roles needed when it was last looked."""
        return self._controller.needs

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._interval_s)
            if self._decides():
                self.look(clock())

    def look(self, now: float) -> None:
        """Decide once, and tell whom it concerns. While two versions overlap nobody is lent: each needs both roles."""
        infos = {info.replica_id: info for info in self._workers.infos()}
        fleet = self._workers.fleet()
        members = [_member(fleet, info) for info in infos.values() if info.replica_id in fleet.replicas]
        if len({member.replica.kv_fingerprint for member in members}) > 1:
            return
        for change in self._controller.decide(members, now):
            self._order(change, infos[change.replica_id])

    def _order(self, change: Change, info: WorkerInfo) -> None:
        log.info("lending %s to %s: %s", change.replica_id, change.role.value, change.why)
        self._workers.take_role(change.replica_id, TakeRole(change.role.value, info.role_epoch, change.why))
        self.changes[change.role] += 1


def _member(fleet: Fleet, info: WorkerInfo) -> Member:
    return Member(fleet.replicas[info.replica_id], Role(info.home or info.role), info.pinned)
