"""Places each request where it is predicted to cost the least time, knowing where its blocks are.

The cost is the request's own time and what it takes from others (`routing.costs`); which placements are looked at is
`routing.candidates`. Nothing is sticky by rule: what is cached makes a replica cheap, what waits there makes it dear.
"""

from dataclasses import dataclass, replace
from math import inf

from routing.candidates import Search
from routing.costs import Job
from routing.errors import NoCandidate
from routing.fit import why_none
from routing.fleet import Fleet
from routing.halves import Halves
from routing.index import KvIndex, Prefixes
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.placement import Placement
from routing.rates import Rates
from routing.router import Decision, Predicted, Rng, RouteRequest
from routing.view import View


@dataclass(frozen=True, slots=True)
class KvAwareSettings:
    """`itl_target_s` is the time between tokens that decode replicas should keep."""

    itl_target_s: float = inf


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement that was considered, for people. `cost_s` is what it is ranked by."""

    decode: str
    prefill: str | None
    cost_s: float
    predicted: Predicted


class KvAware:
    """A `Router`. Asks `index`, `ledger`, `rates` and `lengths`; changes none of them."""

    def __init__(
        self, settings: KvAwareSettings, index: KvIndex, ledger: Ledger, rates: Rates, lengths: OutputLengths
    ) -> None:
        self._settings = settings
        self._index = index
        self._books = ledger.books
        self._lengths = lengths
        self._view = View(rates, ledger.books)

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """The cheapest placement. See `Router`."""
        job = self._job(request)
        found = self._search(request, job, fleet, now, rng).found()
        if not found.options:
            raise NoCandidate(why_none(request, fleet))
        placement = Placement.of(found.options[0], found)
        more_s = found.options[1].cost_s - placement.cost_s if len(found.options) > 1 else None
        return Decision(
            placement.decode,
            placement.prefill,
            placement.why(more_s),
            placement.predicted(job.prompt),
            placement.work(job, request.keys),
        )

    def explain(self, request: RouteRequest, fleet: Fleet, now: float) -> list[Candidate]:
        """Every placement worth considering, the best first; equal ones in the order in which they take turns."""
        job = self._job(request)
        search = self._search(request, job, fleet, now, None)
        found = replace(search, alone=len(self._view.decodes)).found()
        placements = [Placement.of(option, found) for option in found.options]
        return [Candidate(p.decode, p.prefill, p.cost_s, p.predicted(job.prompt)) for p in placements]

    def _job(self, request: RouteRequest) -> Job:
        output = self._lengths.expected(request.max_tokens)
        return Job(request.prompt_tokens, output, request.outputs, self._settings.itl_target_s)

    def _search(self, request: RouteRequest, job: Job, fleet: Fleet, now: float, rng: Rng | None) -> Search:
        self._view.look(fleet, now)
        found: dict[int, Prefixes] = {}

        def prefixes(block_size: int) -> Prefixes:
            known = found.get(block_size)
            if known is None:
                usable = (request.prompt_tokens - 1) // block_size
                known = self._index.longest_prefix(request.keys.at(block_size)[:usable], now)
                found[block_size] = known
            return known

        return Search(request, self._view, Halves(job, self._view, self._books, prefixes, now), rng)
