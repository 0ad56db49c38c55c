"""Looks after a worker's engine: asks an idle one for a step now and then, and says when it is ill, or well again.

Ill is an engine that died, that failed the step it was asked for, or that is wedged (`cluster.workers.pulse`).
"""

import asyncio
from collections.abc import Callable

from cluster.engines.engine import Engine, EngineStatistics
from cluster.errors import EngineFailed
from cluster.workers.pulse import Pulse, PulseSettings, Sign


class EngineWatch:
    """Calls `changed` when `ill` has: why the engine cannot be given work; empty while it can."""

    def __init__(self, engine: Engine, settings: PulseSettings, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._settings = settings
        self._changed = changed
        self._clock = asyncio.get_running_loop().time
        self._pulse = Pulse(settings, self._clock())
        self._probe: asyncio.Task[None] | None = None
        self._failure = ""
        self._failed_at_step = 0
        self.ill = ""

    def __repr__(self) -> str:
        return f"<EngineWatch {self.ill or 'well'} probing={self._probe is not None} {self._pulse!r}>"

    async def run(self) -> None:
        """Until cancelled. Begins with a step, asked of the engine before it has much to do: how fast is it?"""
        async with asyncio.TaskGroup() as probes:
            self._ask(probes)
            while True:
                self._look(probes)
                await asyncio.sleep(self._settings.look_s)

    def _look(self, probes: asyncio.TaskGroup) -> None:
        statistics = self._engine.statistics()
        has_work = self._probe is not None or statistics.running + statistics.waiting > 0
        if self._pulse.look(self._clock(), statistics.steps, has_work) is Sign.PROBE:
            self._ask(probes)
        if statistics.steps != self._failed_at_step:
            self._failure = ""
        self._judge(statistics)

    def _ask(self, probes: asyncio.TaskGroup) -> None:
        self._probe = probes.create_task(self._step(), name="health probe")

    def _judge(self, statistics: EngineStatistics) -> None:
        ill = "the engine died" if statistics.dead else self._failure
        if not ill and self._pulse.stalled:
            ill = f"the engine has work and has made no step for more than {self._pulse.allowed_s:g} s (health.stall_s)"
        if ill != self.ill:
            self.ill = ill
            self._changed()

    async def _step(self) -> None:
        """Ask for one step. How long it may take is the pulse's to say: it looks on meanwhile."""
        began_s = self._clock()
        try:
            await self._engine.check_health()
        except EngineFailed as error:
            self._failure, self._failed_at_step = str(error), self._engine.statistics().steps
        else:
            self._failure = ""
            self._pulse.small_step(self._clock() - began_s)
        finally:
            self._probe = None
