"""What one gateway sees of all workers: the same until a worker can have reported again."""

from collections.abc import Mapping

from cluster.planning.site import Site
from routing.fleet import Fleet


class Sight:
    """Keeps the fleet of the latest look. Workers report at the same times (`load_reports.py`), and not in between.

    Whoever changes the workers or their roles says so (`look_anew`).
    """

    def __init__(self, sites: Mapping[str, Site], gateway: int, period_s: float) -> None:
        self._sites = sites
        self._gateway = gateway
        self._period_s = period_s
        self._tick = -1
        self._fleet = Fleet({})

    def fleet(self, now: float) -> Fleet:
        """All workers as the gateway knows them at `now`."""
        tick = int(now / self._period_s)
        if tick > self._tick:
            self._fleet = Fleet({name: site.replica(self._gateway) for name, site in self._sites.items()})
            self._tick = tick
        return self._fleet

    def look_anew(self) -> None:
        """Something else than reports has changed."""
        self._tick = -1
