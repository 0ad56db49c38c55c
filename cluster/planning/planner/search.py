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
    tried: dict[Topology, Trial] = {}

    def look(which: Sequence[Topology], on: tuple[Window, ...], worst: float) -> None:
        most_bad = worst * sum(window.count for window in on)
        for trial in attempt([Ask(topology, on, load, most_bad) for topology in which]):
            tried[trial.topology] = trial
            report(f"{trial.topology}: {'given up' if trial.given_up else f'{trial.share:.1%} good'}")

    def climb(which: Sequence[Topology]) -> None:
        look(which, effort.climb, _most_bad(tried.values(), costs))

    climb([Topology(prefill, replicas - prefill) for prefill in (0, 1) if prefill < replicas])
    if replicas > 1:
        _climb(replicas, demand.divide(replicas).prefill, climb, tried, costs)
    if effort.confirm != effort.climb:
        look(_finalists(tried.values(), costs), effort.confirm, math.inf)
        confirmed = [trial for trial in tried.values() if trial.ask.windows == effort.confirm]
        return Found(best_of(confirmed, costs), tuple(tried.values()))
    return Found(best_of(tried.values(), costs), tuple(tried.values()))


def _climb(
    replicas: int,
    start: int,
    look: Callable[[Sequence[Topology]], None],
    tried: dict[Topology, Trial],
    costs: Costs,
) -> None:
    """Try ratios until the neighbours of the best one, one replica more or less for prefill, are tried as well."""
    step, centre = max(1, replicas // 8), start
    while True:
        around = [Topology(p, replicas - p) for p in (centre - step, centre, centre + step) if 0 < p < replicas]
        if fresh := [topology for topology in around if topology not in tried]:
            look(fresh)
        best = best_of((trial for topology, trial in tried.items() if topology.prefill), costs).topology.prefill
        if best == centre:
            if step == 1 or _flat([tried[topology] for topology in around]):
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
