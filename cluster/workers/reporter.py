"""Tells the gateways how busy the worker is: when it changes, at most every `EVERY_S`, and at least every second."""

import asyncio
from collections.abc import Callable

from cluster.dataplane.frames import Load

EVERY_S = 0.05
AT_LEAST_EVERY_S = 1.0


class LoadReporter:
    """`measure` takes a snapshot, `publish` sends it. `changed` wakes an idle reporter."""

    def __init__(self, measure: Callable[[], Load], publish: Callable[[Load], None], changed: asyncio.Event) -> None:
        self._measure = measure
        self._publish = publish
        self._changed = changed

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        last, last_at = None, float("-inf")
        while True:
            self._changed.clear()
            load = self._measure()
            if load != last or clock() - last_at >= AT_LEAST_EVERY_S:
                self._publish(load)
                last, last_at = load, clock()
            await asyncio.sleep(EVERY_S)
            if _is_idle(load):
                await self._rest(last_at + AT_LEAST_EVERY_S)

    async def _rest(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return


def _is_idle(load: Load) -> bool:
    return not (load.running or load.waiting or load.held)
