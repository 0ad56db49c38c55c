"""The climb over the ratio, on goodput that is known: it finds the top and does not try everything."""

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.planning.planner.demand import Demand
from cluster.planning.planner.fewest import Wanted, fewest
from cluster.planning.planner.question import CannotPlan, Costs
from cluster.planning.planner.search import Effort, better, search, windows
from cluster.planning.planner.topology import Topology, topologies
from cluster.planning.planner.trial import Ask, Trial, Window

ALL = (Window(0, 1000),)


def trial(ask: Ask, share: float, strain: float = 0.5) -> Trial:
    return Trial(ask, round(share * ask.requests), share, 0.1, 0.2, 0.01, 0.02, 0.0, strain)


class Known:
    """Goodput as a function of the topology; counts what was tried."""

    def __init__(self, share: Callable[[Topology], float]) -> None:
        self._share = share
        self.asked: list[Topology] = []

    def __call__(self, asks: Sequence[Ask]) -> list[Trial]:
        self.asked += [ask.topology for ask in asks]
        return [self._try(ask) for ask in asks]

    def _try(self, ask: Ask) -> Trial:
        found = trial(ask, self._share(ask.topology), 2 - self._share(ask.topology))
        given_up = ask.requests - found.good > ask.most_bad
        return Trial(ask, found.good, 0, 0, 0, 0, 0, 0, math.inf, given_up=True) if given_up else found


def hill(top: int) -> Callable[[Topology], float]:
    """The farther from `top`, the worse; aggregated is bad."""
    return lambda topology: 0.95 * math.exp(-0.1 * abs(topology.prefill - top)) if topology.prefill else 0.0


@given(st.integers(2, 64), st.data())
def test_the_top_of_a_hill_is_found_from_anywhere(replicas: int, data: st.DataObject) -> None:
    top, start = data.draw(st.integers(1, replicas - 1)), data.draw(st.integers(1, replicas - 1))
    attempt = Known(hill(top))
    demand = Demand(start, replicas - start, 1)
    found = search(replicas, demand, Effort(ALL, ALL), attempt, Costs(), lambda text: None)
    assert found.best.topology == Topology(top, replicas - top)
    assert len(attempt.asked) == len(set(attempt.asked))


def test_a_climb_tries_a_fraction_of_all_ratios() -> None:
    attempt = Known(hill(19))
    search(32, Demand(16, 16, 1), Effort(ALL, ALL), attempt, Costs(), lambda text: None)
    assert len(attempt.asked) <= 12


def test_on_a_plateau_few_looks_are_enough() -> None:
    attempt = Known(lambda topology: 1.0)
    search(32, Demand(16, 16, 1), Effort(ALL, ALL), attempt, Costs(), lambda text: None)
    assert len(attempt.asked) <= 9


def test_finalists_are_confirmed_on_more_of_the_trace_and_the_best_there_wins() -> None:
    def share(topology: Topology) -> float:
        return 0.9 if topology.prefill in (3, 4) else 0.5

    class Longer(Known):
        def _try(self, ask: Ask) -> Trial:
            return trial(ask, 0.95 if ask.requests > 1000 and ask.topology.prefill == 4 else share(ask.topology))

    effort = Effort(ALL, (Window(0, 3000),))
    found = search(8, Demand(3, 5, 1), effort, Longer(share), Costs(), lambda text: None)
    assert (found.best.topology, found.best.ask.requests) == (Topology(4, 4), 3000)


def test_where_longer_windows_are_worse_the_climb_goes_on_there() -> None:
    class Queueing(Known):
        def _try(self, ask: Ask) -> Trial:
            short = ask.requests == 1000
            return trial(ask, hill(1 if short else 4)(ask.topology) * (1 if short else 0.8))

    effort = Effort(ALL, (Window(0, 3000),))
    found = search(8, Demand(1, 7, 1), effort, Queueing(hill(1)), Costs(), lambda text: None)
    assert found.best.topology == Topology(4, 4)


def test_among_equals_the_cheaper_then_the_less_strained_wins() -> None:
    dear, cheap = (trial(Ask(Topology(p, 4 - p), ALL), 0.9) for p in (2, 1))
    assert better(cheap, dear, Costs(prefill=2.0, decode=1.0))
    calm = trial(Ask(Topology(2, 2), ALL), 0.9, strain=0.1)
    assert better(calm, cheap, Costs())
    assert better(trial(Ask(Topology(3, 1), ALL), 0.95, strain=9.0), calm, Costs())


def test_windows_lie_evenly_over_the_trace() -> None:
    assert windows(100, 3, 10) == (Window(0, 10), Window(45, 10), Window(90, 10))
    assert windows(29, 3, 10) == (Window(0, 29),)


@given(st.integers(1, 40), st.integers(1, 60))
def test_the_fewest_replicas_that_are_enough_are_found(needed: int, guessed: int) -> None:
    attempt = Known(lambda topology: 1.0 if topology.replicas >= needed else 0.5)
    demand = Demand(guessed / 2, guessed / 2, 1)
    found = fewest(Wanted(0.99), demand, Effort(ALL, ALL), attempt, Costs(), lambda text: None)
    assert found.best.topology.replicas == needed


def test_targets_that_no_number_of_replicas_keeps_are_said_to_be_so() -> None:
    with pytest.raises(CannotPlan, match=r"keep the targets for 40.0% of requests only"):
        fewest(Wanted(0.99), Demand(1, 1, 1), Effort(ALL, ALL), Known(lambda t: 0.4), Costs(), lambda text: None)


def test_all_ways_to_divide_are_known() -> None:
    assert [str(each) for each in topologies(3)] == ["3 aggregated", "1P:2D", "2P:1D"]
