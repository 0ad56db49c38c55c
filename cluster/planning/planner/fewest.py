"""The fewest replicas that keep the targets for a share of all requests.

More replicas never serve fewer requests well, so their number is found by doubling and halving; each number is tried at
the ratio that was best for the one before, and its neighbours.
"""

import math
from dataclasses import dataclass

from cluster.planning.planner.demand import Demand
from cluster.planning.planner.question import CannotPlan, Costs
from cluster.planning.planner.search import Effort, Found, Report, search
from cluster.planning.planner.trial import Try

MOST_REPLICAS = 1_024
_FULL = 0.8
"""How busy replicas may be on average, to begin with."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """`attainment` is the share of requests that must be good."""

    attainment: float
    load: float = 1.0


def fewest(wanted: Wanted, demand: Demand, effort: Effort, attempt: Try, costs: Costs, report: Report) -> Found:
    """Raises `CannotPlan` when even `MOST_REPLICAS` are too few, as with targets that an idle replica misses."""
    found: dict[int, Found] = {}
    ratio = demand

    def enough(replicas: int) -> bool:
        nonlocal ratio
        report(f"{replicas} replicas")
        found[replicas] = search(replicas, ratio, effort, attempt, costs, report, wanted.load)
        best = found[replicas].best
        if best.topology.prefill:
            ratio = Demand(best.topology.prefill, best.topology.decode, demand.batch)
        return best.share >= wanted.attainment

    low, high = 0, max(1, math.ceil((demand.prefill + demand.decode) / _FULL))
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_REPLICAS:
            raise CannotPlan(f"{low} replicas keep the targets for {found[low].best.share:.1%} of requests only")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return found[high]
