"""Places each request where it is predicted to cost the least time, knowing where its blocks are.

The cost is the request's own time and what it takes from others (`routing.costs`); which placements are looked at is
`routing.candidates`. Nothing is sticky by rule: what is cached makes a replica cheap, what waits there makes it dear.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from routing.candidates import SHORTLIST, Option, find_options
from routing.costs import Found, Job, Price, price_all
from routing.errors import NoCandidate
from routing.fit import why_none
from routing.fleet import Fleet
from routing.found import look_up
from routing.index import KvIndex, Prefixes
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.placement import decision, fetch_of, predict, prefill_id
from routing.rates import Rates
from routing.records import Table, read
from routing.room import find_room
from routing.router import Coming, Decision, Fetch, Predicted, Rng, RouteRequest
from routing.view import View
from routing.waiting import coming, find_leader, take_cheaper, when_there


@dataclass(frozen=True, slots=True)
class KvAwareSettings:
    """`itl_target_s` is the time between tokens that decode replicas should keep, `far_factor` how many times longer
    blocks take to a node of another zone than to one of the same.
    """

    itl_target_s: float = inf
    far_factor: float = 2.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement that was considered, for people. `cost_s` is what it is ranked by."""

    decode: str
    prefill: str | None
    cost_s: float
    predicted: Predicted
    fetch: Fetch | None = None


class _Options(NamedTuple):
    """The options, the best first, and by place what is waited for where the prompt is computed."""

    table: Table[Option]
    coming: Mapping[int, Coming]


class KvAware:
    """A `Router`. Asks `index`, `ledger`, `rates` and `lengths`; changes none of them."""

    def __init__(
        self, settings: KvAwareSettings, index: KvIndex, ledger: Ledger, rates: Rates, lengths: OutputLengths
    ) -> None:
        self._settings = settings
        self._index = index
        self._books = ledger.books
        self._lengths = lengths
        self._view = View(rates, ledger.books, settings.far_factor)

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """The cheapest placement. See `Router`."""
        job = self._look(request, fleet, now)
        options, coming = self._options(request, job, SHORTLIST, rng.random(), rng.random())
        if not len(options):
            raise NoCandidate(why_none(request, fleet))
        best, *others = (read(options, place, Option) for place in range(min(2, len(options))))
        awaited = coming.get(best.computing)
        return decision(best, others[0] if others else None, self._view.pool, job, request.keys, awaited)

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        """What awaits the cheapest placement. See `Router`."""
        job = self._look(request, fleet, now)
        options = self._options(request, job, 1, 0.0, 0.0).table
        return predict(read(options, 0, Option), job) if len(options) else None

    def explain(self, request: RouteRequest, fleet: Fleet, now: float) -> list[Candidate]:
        """Every placement worth considering, the best first; equal ones in the order in which they take turns."""
        job = self._look(request, fleet, now)
        pool = self._view.pool
        table = self._options(request, job, len(pool), 0.0, 0.0).table
        options = [read(table, place, Option) for place in range(len(table))]
        return [
            Candidate(pool.ids[o.decoding], prefill_id(o, pool), o.cost_s, predict(o, job), fetch_of(o, pool))
            for o in options
        ]

    def _look(self, request: RouteRequest, fleet: Fleet, now: float) -> Job:
        self._view.look(fleet, now)
        output = self._lengths.expected(request.max_tokens)
        return Job(
            prompt=request.prompt_tokens,
            output=output,
            outputs=request.outputs,
            context=request.prompt_tokens + output // 2,
            max_tokens=request.max_tokens,
            may_disaggregate=request.may_disaggregate,
            itl_target_s=self._settings.itl_target_s,
            share=self._view.share,
            now=float(now),
        )

    def _options(self, request: RouteRequest, job: Job, alone: int, chance: float, choice: float) -> _Options:
        """Of decode replicas that compute the prompt themselves the `alone` best."""

        def prefixes(block_size: int) -> Prefixes:
            usable = (request.prompt_tokens - 1) // block_size
            return self._index.longest_prefix(request.keys.at(block_size)[:usable], job.now)

        pool = self._view.pool
        found = look_up(pool, prefixes, request.exclude)
        prices = price_all(pool.members, pool.reports, pool.rows, self._books.table, found, job)
        awaited = self._await(request, job, found, prices) if request.may_wait else {}
        find_room(pool.members, prices, job)
        return _Options(find_options(pool.members, prices, pool.fingerprints, alone, chance, choice), awaited)

    def _await(
        self, request: RouteRequest, job: Job, found: Table[Found], prices: Table[Price]
    ) -> Mapping[int, Coming]:
        """Let replicas wait for what another computes, where that is cheaper; `prices` are theirs then."""
        pool, books = self._view.pool, self._books.table
        leader = find_leader(pool, found, prices, books)
        if leader is None:
            return {}
        there = when_there(pool, found, leader)
        waiting = take_cheaper(prices, price_all(pool.members, pool.reports, pool.rows, books, there, job))
        return dict.fromkeys(waiting, coming(leader, pool, request.keys))
