"""What every request of a gateway shares: the collaborators of the coordinator, and its settings."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.observer import EndListener, Observer
from cluster.coordinator.workers import Workers
from routing.arrivals import Arrivals
from routing.ledger import Ledger
from routing.router import Rng, Router


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Bounds. `max_attempts` is the replicas tried for one request, `max_moves` how often it moves off one that drains,
    `max_waits` how often it waits for blocks that another computes.

    `replica_s` is how long a request that has lost its replica waits for one when there is none.
    """

    max_attempts: int = 3
    max_moves: int = 32
    max_waits: int = 2
    request_s: float = 600.0
    handoff_s: float = 60.0
    replica_s: float = 120.0
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)


class HandoffIds:
    """Ids that no other gateway uses: 53 random bits drawn once, and a count."""

    def __init__(self, rng: Rng) -> None:
        self._prefix = f"{int(rng.random() * 2**53):014x}"
        self._count = itertools.count()

    def next(self) -> str:
        """A new id."""
        return f"{self._prefix}-{next(self._count)}"


@dataclass(frozen=True, slots=True)
class Resources:
    """Shared by all requests. `clock` is monotonic, in seconds. Without `arrivals` nobody waits for others' blocks."""

    workers: Workers
    router: Router
    ledger: Ledger
    clock: Callable[[], float]
    rng: Rng
    settings: CoordinatorSettings
    observer: Observer
    handoff_ids: HandoffIds
    listeners: Sequence[EndListener] = ()
    arrivals: Arrivals | None = None
