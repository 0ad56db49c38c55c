"""Places each request where it is predicted to cost the least time, knowing where its blocks are.

The cost is the request's own time and what it takes from others (`routing.costs`); which placements are looked at is
`routing.candidates`. Nothing is sticky by rule: what is cached makes a replica cheap, what waits there makes it dear.
"""

from dataclasses import dataclass
from math import inf

from routing.candidates import Option, Search
from routing.costs import Job, blocks_needed
from routing.errors import NoCandidate
from routing.fit import why_none
from routing.fleet import Fleet
from routing.index import KvIndex, Prefixes
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.rates import Rates
from routing.router import Decision, Predicted, Rng, RouteRequest, Work
from routing.standing import Standings


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
            best.decode.replica_id, source, _why(best, options), _predicted(best, job), _work(best, job, request)
        )

    def explain(self, request: RouteRequest, fleet: Fleet, now: float) -> list[Candidate]:
        """Every placement worth considering, the best first; equal ones in the order in which they take turns."""
        job = self._job(request)
        return [
            Candidate(
                option.decode.replica_id,
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
        self._standings.look(fleet, now)
        found: dict[int, Prefixes] = {}

        def prefixes(block_size: int) -> Prefixes:
            known = found.get(block_size)
            if known is None:
                usable = (request.prompt_tokens - 1) // block_size
                known = self._index.longest_prefix(request.keys.at(block_size)[:usable], now)
                found[block_size] = known
            return known

        ledger = self._ledger
        return Search(request, job, self._standings, ledger.accounts, ledger.given, prefixes, now, rng).options()


def _predicted(option: Option, job: Job) -> Predicted:
    computed = option.computing
    return Predicted(
        queue_s=computed.queue_s + option.wait_s,
        compute_s=computed.compute_s,
        load_s=computed.load_s + option.transfer_s + option.load_s,
        first_step_s=option.first_step_s,
        itl_s=option.decoding.itl_s,
        computed_tokens=computed.computed,
        cached_tokens=job.prompt - computed.computed,
    )


def _work(option: Option, job: Job, request: RouteRequest) -> Work:
    computes = option.source or option.decode
    return Work(
        prefill_tokens=option.computing.computed,
        prefill_s=option.computing.work_s,
        decode_tokens=job.output * job.outputs,
        context_tokens=job.context,
        blocks=blocks_needed(option.decode, job, option.decoding.cached_blocks),
        prefill_keys=request.keys.at(computes.block_size),
        decode_keys=request.keys.at(option.decode.block_size),
    )


def _why(best: Option, options: list[Option]) -> str:
    """The winner's parts, and what the next best would have cost more."""
    computed = best.computing
    waiting_s = computed.queue_s + best.wait_s
    more = f", {options[1].cost_s - best.cost_s:.3f} s less than the next" if len(options) > 1 else ""
    return (
        f"{_where(best)}: first token in {best.ttft_s:.3f} s ({computed.computed} tokens to compute after "
        f"{waiting_s:.3f} s of waiting), the cheapest of {len(options)} at {best.cost_s:.3f} s{more}"
    )


def _where(option: Option) -> str:
    if option.source is None:
        return f"{option.decode.replica_id} computes the prompt itself"
    return f"prefill on {option.source.replica_id}, decode on {option.decode.replica_id}"
