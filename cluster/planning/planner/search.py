"""The best ratio for a number of replicas: a climb over the ratio on windows of the trace, confirmed on longer ones.

Goodput over the ratio has a hill: with too few prefill replicas prompts wait, with too few decode replicas tokens do.
So the climb goes from where the demand points in halving steps, and tries no ratio twice. Decode replicas compute
prompts too where the router finds that cheaper, which makes a second hill where nearly all are for decode: its top is
tried. On the plateau of a hill, where all requests are good, and in the valleys, where none is, the strain on the
targets decides.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.planning.planner.demand import Demand
from cluster.planning.planner.question import Costs
from cluster.planning.planner.topology import Topology
from cluster.planning.planner.trial import Ask, Trial, Try, Window

SAME_SHARE = 0.002
"""Shares of good requests that differ by less are taken to be equal."""

PLATEAU = 0.5
"""Equal neighbours that serve a smaller share of all requests well lie in a valley, or nobody knows where."""

FINALISTS = 3
NEAR = 0.05
"""Those whose share of good requests is within this of the best are confirmed, `FINALISTS` at most."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the trace is simulated: in the climb, and to confirm."""

    climb: tuple[Window, ...]
    confirm: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The best, confirmed; all that was tried, each topology by its longest trial."""

    best: Trial
    tried: tuple[Trial, ...]


def windows(requests: int, count: int, each: int) -> tuple[Window, ...]:
    """`count` windows of `each` requests, evenly over the trace; all of it when that is not more."""
    if requests <= count * each:
        return (Window(0, requests),)
    step = (requests - each) / max(count - 1, 1)
    return tuple(Window(round(number * step), each) for number in range(count))


def effort_for(requests: int) -> Effort:
    """What finds a ratio in seconds: 750 requests a trial, 2,400 to confirm."""
    return Effort(windows(requests, 3, 250), windows(requests, 3, 800))


def better(one: Trial, other: Trial, costs: Costs) -> bool:
    """Whether `one` is to be preferred: more good requests, then cheaper, then less strain."""
    if one.given_up != other.given_up:
        return other.given_up
    if abs(one.share - other.share) > SAME_SHARE:
        return one.share > other.share
    if costs.of(one.topology) != costs.of(other.topology):
        return costs.of(one.topology) < costs.of(other.topology)
    return one.strain < other.strain


def best_of(trials: Iterable[Trial], costs: Costs) -> Trial:
    """The one that none is better than."""
    first, *others = trials
    for trial in others:
        if better(trial, first, costs):
            first = trial
    return first


def search(
    replicas: int, demand: Demand, effort: Effort, attempt: Try, costs: Costs, report: Report, load: float = 1.0
) -> Found:
    """The best topology of that many replicas."""
    climb = _Level(replicas, effort.climb, load, attempt, costs, report)
    climb.look([Topology(prefill, replicas - prefill) for prefill in (0, 1) if prefill < replicas])
    if replicas > 1:
        climb.climb(demand.divide(replicas).prefill, max(1, replicas // 8))
    if effort.confirm == effort.climb:
        return Found(best_of(climb.tried.values(), costs), tuple(climb.tried.values()))
    confirm = _Level(replicas, effort.confirm, load, attempt, costs, report)
    confirm.look(_finalists(climb.tried.values(), costs))
    best = best_of(confirm.tried.values(), costs)
    if best.topology.prefill and climb.tried[best.topology].share - best.share > NEAR:
        confirm.climb(best.topology.prefill, 1)
    return Found(best_of(confirm.tried.values(), costs), tuple({**climb.tried, **confirm.tried}.values()))


class _Level:
    """Trials on the same windows. Queues that grow slowly show on long ones only: where those are worse, the climb goes
    on there.
    """

    def __init__(
        self, replicas: int, on: tuple[Window, ...], load: float, attempt: Try, costs: Costs, report: Report
    ) -> None:
        self.tried: dict[Topology, Trial] = {}
        self._replicas = replicas
        self._on = on
        self._load = load
        self._attempt = attempt
        self._costs = costs
        self._report = report

    def look(self, which: Sequence[Topology]) -> None:
        """Try these; those that are far worse than a known ratio are given up."""
        most_bad = _most_bad(self.tried.values(), self._costs) * sum(window.count for window in self._on)
        for trial in self._attempt([Ask(topology, self._on, self._load, most_bad) for topology in which]):
            self.tried[trial.topology] = trial
            self._report(f"{trial.topology}: {'given up' if trial.given_up else f'{trial.share:.1%} good'}")

    def climb(self, centre: int, step: int) -> None:
        """Try ratios until the neighbours of the best one, one replica more or less for prefill, are tried as well."""
        while True:
            beside = (centre - step, centre, centre + step)
            around = [Topology(prefill, self._replicas - prefill) for prefill in beside if 0 < prefill < self._replicas]
            if fresh := [topology for topology in around if topology not in self.tried]:
                self.look(fresh)
            split = [trial for topology, trial in self.tried.items() if topology.prefill]
            best = best_of(split, self._costs).topology.prefill
            if best == centre:
                if step == 1 or _flat([self.tried[topology] for topology in around]):
                    return
                step //= 2
            centre = best


def _flat(around: Sequence[Trial]) -> bool:
    """Both neighbours serve the same share: there is nothing to gain between them."""
    shares = [trial.share for trial in around]
    return len(shares) == 3 and min(shares) >= PLATEAU and max(shares) - min(shares) <= SAME_SHARE


def _most_bad(tried: Iterable[Trial], costs: Costs) -> float:
    """The share of bad requests at which a trial is of no use any more: a ratio far better is known."""
    known = [trial for trial in tried if trial.topology.prefill]
    return 1 - best_of(known, costs).share + NEAR if known else math.inf


def _finalists(tried: Iterable[Trial], costs: Costs) -> list[Topology]:
    left = list(tried)
    chosen: list[Trial] = []
    while left and len(chosen) < FINALISTS:
        best = best_of(left, costs)
        left.remove(best)
        if not chosen or best.share >= chosen[0].share - NEAR:
            chosen.append(best)
    return [trial.topology for trial in chosen]
