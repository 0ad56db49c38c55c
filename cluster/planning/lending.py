"""The production pool controller in virtual time: it reads the workers' reports and changes their roles."""

from dataclasses import dataclass

from cluster.planning.simulation import Simulation
from cluster.pools.controller import Change, PoolController
from cluster.pools.member import Member


@dataclass(frozen=True, slots=True)
class Lent:
    """A change, and when it was made."""

    at_s: float
    change: Change


class Lending:
    """Asks `controller` every `interval_s` for as long as anything happens. `history` is what it changed."""

    def __init__(self, simulation: Simulation, controller: PoolController, interval_s: float) -> None:
        self.history: list[Lent] = []
        self._simulation = simulation
        self._controller = controller
        self._interval_s = interval_s
        simulation.at(0.0, self._look)

    def _look(self) -> None:
        events = self._simulation.events
        members = [Member(site.replica(0), site.settings.role) for site in self._simulation.sites.values()]
        for change in self._controller.decide(members, events.now):
            self._simulation.lend(change.replica_id, change.role)
            self.history.append(Lent(events.now, change))
        if len(events):
            events.at(events.now + self._interval_s, self._look)
