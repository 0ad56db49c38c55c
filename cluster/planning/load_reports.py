"""What gateways know of a worker's load: its state at the last report, not now.

Reports are not simulated as events, which would be most of all events. Instead the worker says before each change that
it comes (`before_change`): when a report fell due since the change before, the state up to now is what it said.
"""

from collections.abc import Callable

from routing.fleet import ReplicaLoad


class LoadReports:
    """The reports of one worker to one gateway, every `period_s` seconds from time 0."""

    def __init__(self, period_s: float, state: Callable[[], ReplicaLoad]) -> None:
        self._period_s = period_s
        self._state = state
        self._tick = -1
        self._last = ReplicaLoad()

    def before_change(self, now: float) -> None:
        """The worker's state changes at `now`."""
        tick = int(now / self._period_s)
        if tick > self._tick:
            self._last = self._state()
            self._tick = tick

    def last(self, now: float) -> ReplicaLoad:
        """The newest report at `now`."""
        self.before_change(now)
        return self._last
