"""The answer to a question: the best ratio of given replicas, or the fewest replicas."""

from dataclasses import dataclass

from cluster.planning.planner.demand import Demand, demand_of
from cluster.planning.planner.fewest import Wanted, fewest
from cluster.planning.planner.question import Question
from cluster.planning.planner.search import Effort, Report, effort_for, search
from cluster.planning.planner.trial import Trial, Try
from cluster.planning.trace import statistics


@dataclass(frozen=True, slots=True)
class Wish:
    """So many `replicas`; None: the fewest with which the share `attainment` is good. `load` speeds the trace up."""

    replicas: int | None
    attainment: float = 0.99
    load: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The best, and what else was tried with as many replicas; how much of the trace that took."""

    best: Trial
    tried: tuple[Trial, ...]
    demand: Demand
    effort: Effort


def answer(question: Question, wish: Wish, attempt: Try, report: Report) -> Answer:
    """Search. Raises `CannotPlan`."""
    engine = question.engine
    told = statistics(question.trace)
    demand = demand_of(told, engine.rates, engine.kv_tokens, question.slo, wish.load)
    effort = effort_for(told.requests)
    if wish.replicas is None:
        wanted = Wanted(wish.attainment, wish.load)
        found = fewest(wanted, demand, effort, attempt, question.costs, report)
    else:
        found = search(wish.replicas, demand, effort, attempt, question.costs, report, wish.load)
    return Answer(found.best, found.tried, demand, effort)
