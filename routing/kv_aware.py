"""Places each request where it is predicted to cost the least time, knowing where its blocks are.

The cost is the request's own time and what it takes from others (`routing.costs`); which placements are looked at is
`routing.candidates`. Nothing is sticky by rule: what is cached makes a replica cheap, what waits there makes it dear.
"""

from dataclasses import dataclass
from math import inf

from routing.candidates import Option, Search
from routing.costs import Job
from routing.errors import NoCandidate
from routing.fit import why_none
from routing.fleet import Fleet
from routing.index import KvIndex, Prefixes
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.rates import Rates
from routing.router import Decision, Predicted, Rng, RouteRequest, Work
from routing.seats import Board
from routing.standings import Standings


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
        self._ledger = ledger
        self._rates = rates
        self._lengths = lengths
        self._standings = Standings(rates, ledger.accounts, ledger.given)

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """The cheapest placement. See `Router`."""
        job = self._job(request)
        options = self._options(request, job, fleet, now, rng)
        if not options:
            raise NoCandidate(why_none(request, fleet))
        best = options[0]
        source = best.source.replica_id if best.source is not None else None
        return Decision(
            best.seat.standing.replica_id, source, _why(best, options), _predicted(best, job), _work(best, job, request)
        )

    def explain(self, request: RouteRequest, fleet: Fleet, now: float) -> list[Candidate]:
        """Every placement worth considering, the best first; equal ones in the order in which they take turns."""
        job = self._job(request)
        return [
            Candidate(
                option.seat.standing.replica_id,
                option.source.replica_id if option.source is not None else None,
                option.cost_s,
                _predicted(option, job),
            )
            for option in self._options(request, job, fleet, now, None)
        ]

    def _job(self, request: RouteRequest) -> Job:
        output = self._lengths.expected(request.max_tokens)
        return Job(request.prompt_tokens, output, request.outputs, self._settings.itl_target_s)

    def _options(self, request: RouteRequest, job: Job, fleet: Fleet, now: float, rng: Rng | None) -> list[Option]:
        """All of the lone decode replicas only without `rng`: then it is for people."""
        self._standings.look(fleet, now)
        found: dict[int, Prefixes] = {}

        def prefixes(block_size: int) -> Prefixes:
            known = found.get(block_size)
            if known is None:
                usable = (request.prompt_tokens - 1) // block_size
                known = self._index.longest_prefix(request.keys.at(block_size)[:usable], now)
                found[block_size] = known
            return known

        board = Board(job, self._ledger.accounts, prefixes, now)
        return Search(request, self._standings, board, self._ledger.given, rng, whole=rng is None).options()


def _predicted(option: Option, job: Job) -> Predicted:
    return Predicted(
        queue_s=option.queue_s,
        compute_s=option.compute_s,
        load_s=option.load_s,
        first_step_s=option.first_step_s,
        itl_s=option.seat.itl_s,
        computed_tokens=option.lacking.tokens,
        cached_tokens=job.prompt - option.lacking.tokens,
    )


def _work(option: Option, job: Job, request: RouteRequest) -> Work:
    seat = option.seat
    computes = option.source or seat.standing
    return Work(
        prefill_tokens=option.lacking.tokens,
        prefill_s=option.lacking.capacity_s,
        decode_tokens=job.output * job.outputs,
        context_tokens=job.context * job.outputs,
        blocks=seat.terms.blocks - seat.device,
        prefill_keys=request.keys.at(computes.kind.block_size),
        decode_keys=request.keys.at(seat.standing.kind.block_size),
    )


def _why(best: Option, options: list[Option]) -> str:
    """The winner's parts, and what the next best would have cost more."""
    more = f", {options[1].cost_s - best.cost_s:.3f} s less than the next" if len(options) > 1 else ""
    return (
        f"{_where(best)}: first token in {best.ttft_s:.3f} s ({best.lacking.tokens} tokens to compute after "
        f"{best.queue_s:.3f} s of waiting), the cheapest of {len(options)} at {best.cost_s:.3f} s{more}"
    )


def _where(option: Option) -> str:
    if option.source is None:
        return f"{option.seat.standing.replica_id} computes the prompt itself"
    return f"prefill on {option.source.replica_id}, decode on {option.seat.standing.replica_id}"
