"""The legs of one worker: started for gateways, counted, none begun while it drains.

Each leg is a task of the worker's TaskGroup; an error of one leg stays in that leg.
"""

import asyncio

from cluster.dataplane.frames import Generate, TakeRole
from cluster.dataplane.legs import LegSink
from cluster.workers.drain import Drain
from cluster.workers.hold import Pins
from cluster.workers.leg import Leg, LegServices
from cluster.workers.lent_role import LentRole


class Legs:
    """Implements `cluster.dataplane.legs.LegHandler`."""

    def __init__(self, services: LegServices, drain: Drain, role: LentRole) -> None:
        self._services = services
        self._drain = drain
        self._role = role
        self._live: dict[Leg, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.changed = asyncio.Event()
        self.ill = ""

    def __repr__(self) -> str:
        return f"<Legs live={len(self._live)} held={self.held} {self._drain!r}>"

    def __len__(self) -> int:
        return len(self._live)

    @property
    def held(self) -> int:
        """Decode legs waiting for blocks."""
        return sum(leg.held for leg in self._live)

    def start(self, generate: Generate, sink: LegSink) -> Leg:
        """Run a leg; while draining, or while the engine is ill, it fails at once."""
        leg = Leg(generate, sink, self._services)
        if self._drain.draining:
            leg.fail("draining", "the worker is draining")
            return leg
        if self.ill:
            leg.fail("engine", self.ill)
            return leg
        self._services.counters.started(generate.role)
        leg.task = self._services.tasks.create_task(leg.run(), name=f"leg {generate.request_id}")
        self._live[leg] = leg.task
        self._idle.clear()
        self.changed.set()
        leg.task.add_done_callback(lambda _: self._ended(leg))
        return leg

    def fail(self, reason: str) -> None:
        """The engine is ill: all of them fail at once, whatever they wait for."""
        for leg in self._live:
            leg.fail("engine", reason)
            leg.abort()

    def let_go(self, handoff_id: str) -> None:
        """See `LegHandler`."""
        if self._services.store is not None:
            Pins(handoff_id, self._services.store, self._services.tasks).release()

    def take_role(self, order: TakeRole) -> None:
        """See `LegHandler`. Gateways say with each leg what it is to do: those that run are not touched."""
        self._role.take(order)

    def _ended(self, leg: Leg) -> None:
        leg.let_go()
        if self._live.pop(leg).cancelled():
            self._services.counters.aborted()
        if not self._live:
            self._idle.set()
        self.changed.set()

    async def idle(self, deadline_s: float) -> bool:
        """Wait until none is live. False when some still are after `deadline_s` seconds."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
