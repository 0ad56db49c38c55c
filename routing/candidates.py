"""The placements worth considering for one request, and what each costs.

Every fit decode replica may compute the prompt itself. Of the pairs of a prefill and a decode replica only those are
looked at that can be cheapest: a pair costs what its halves cost, and the transfer between their nodes. So the cheapest
few of each half, and partners on the same node, are enough, and a decision is linear in the size of the fleet.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from routing.account import IDLE, NEVER, Account, Given
from routing.costs import CAPACITY, Computing, Decoding, Job, computing, decoding
from routing.index import Prefixes
from routing.router import Rng, RouteRequest
from routing.standing import Standing, Standings
from routing.ties import TOLERANCE, cheapest

_SHORTLIST = 3
_SAME_VIOLATION = 0.01


class Option(NamedTuple):
    """A placement. `source` is None when the decode replica computes the prompt itself.

    Its time to first token is that of `computing`, then `wait_s` for the decode replica's own queue, `transfer_s` of
    blocks after the last chunk, `load_s` and `first_step_s` of the decode replica.
    """

    cost_s: float
    ttft_s: float
    source: Standing | None
    decode: Standing
    computing: Computing
    decoding: Decoding
    wait_s: float = 0.0
    transfer_s: float = 0.0
    load_s: float = 0.0
    first_step_s: float = 0.0


class Fit(NamedTuple):
    """A decode replica that can take the request. `device`, `ready` and `host` are blocks: see `computing`."""

    standing: Standing
    account: Account
    decoding: Decoding
    device: int
    ready: int
    host: int


class Source(NamedTuple):
    """A prefill replica as the first half of a pair."""

    cost_s: float
    standing: Standing
    computing: Computing


class Sink(NamedTuple):
    """A decode replica as the second half of a pair. `lacking` tokens are neither on its device nor on its node."""

    cost_s: float
    standing: Standing
    decoding: Decoding
    queue_s: float
    load_s: float
    first_step_s: float
    lacking: int


H = TypeVar("H", Source, Sink)


@dataclass(frozen=True, slots=True)
class Search:
    """One look at the fleet for one request. `prefixes`, by block size, leave out the block of the last token."""

    request: RouteRequest
    job: Job
    standings: Standings
    accounts: Mapping[str, Account]
    given: Mapping[str, Given]
    prefixes: Callable[[int], Prefixes]
    now: float
    rng: Rng | None

    def options(self) -> list[Option]:
        """The best first; empty when no decode replica is fit. Constraints are violated as little as can be."""
        fit = self._fit()
        options = list(self._pairs(fit)) if fit and self.request.may_disaggregate else []
        wanted = 1 if options else 0
        options += [self._local(entry, wanted) for entry in fit]
        if not options:
            return []
        best = min(options, key=_cost)
        return cheapest(options, TOLERANCE * best.ttft_s, self._turn, self.rng)

    # Decode replicas, and what they would cost if they computed the prompt

    def _fit(self) -> list[Fit]:
        needed, exclude = self.request.prompt_tokens + self.request.max_tokens, self.request.exclude
        accounts, job = self.accounts, self.job
        fit: list[Fit] = []
        for standing in self.standings.decodes:
            replica_id = standing.replica_id
            if needed > standing.max_model_len or replica_id in exclude:
                continue
            prefixes = self.prefixes(standing.block_size)
            device = prefixes.device.get(replica_id, 0)
            ready = max(device, prefixes.promised.get(replica_id, 0))
            account = accounts.get(replica_id, IDLE)
            host = max(ready, prefixes.host.get(replica_id, 0))
            fit.append(Fit(standing, account, decoding(standing, account, job, device), device, ready, host))
        least = min((entry.decoding.violation for entry in fit), default=0.0) + _SAME_VIOLATION
        return [entry for entry in fit if entry.decoding.violation <= least]

    def _local(self, entry: Fit, wanted: int) -> Option:
        """The decode replica computes the prompt, and what decodes there waits for that.

        Where prefill replicas could do it, a decode replica's time is `wanted` even while nothing decodes there.
        """
        standing, account, steps, _, ready, host = entry
        computed = computing(standing, account, self.job.prompt, ready, host, steps.step_s, self.now)
        ttft_s = computed.queue_s + computed.compute_s + computed.load_s
        cost_s = ttft_s + (CAPACITY + max(wanted, steps.batch)) * computed.work_s + steps.cost_s
        return Option(cost_s, ttft_s, None, standing, computed, steps)

    # Pairs

    def _pairs(self, fit: list[Fit]) -> Iterator[Option]:
        """For each fingerprint that both roles have."""
        by_print: dict[str, list[Source]] = {}
        for source in self._sources():
            by_print.setdefault(source.standing.fingerprint, []).append(source)
        for fingerprint, sources in by_print.items():
            sinks = [sink for entry in fit if entry.standing.fingerprint == fingerprint and (sink := self._sink(entry))]
            if sinks:
                yield from self._join(sources, sinks)

    def _sources(self) -> Iterator[Source]:
        needed, exclude, prompt = self.request.prompt_tokens + 1, self.request.exclude, self.job.prompt
        for standing in self.standings.prefills:
            replica_id = standing.replica_id
            if needed > standing.max_model_len or replica_id in exclude:
                continue
            prefixes = self.prefixes(standing.block_size)
            ready = max(prefixes.device.get(replica_id, 0), prefixes.promised.get(replica_id, 0))
            host = max(ready, prefixes.host.get(replica_id, 0))
            account = self.accounts.get(replica_id, IDLE)
            computed = computing(standing, account, prompt, ready, host, 0.0, self.now)
            cost_s = computed.queue_s + computed.compute_s + computed.load_s + CAPACITY * computed.work_s
            yield Source(cost_s, standing, computed)

    def _sink(self, entry: Fit) -> Sink | None:
        """None when there is no whole block to hand over before the last token."""
        standing, account, steps, device, _, _ = entry
        size, prompt = standing.block_size, self.job.prompt
        whole = (prompt - 1) // size
        if whole == 0:
            return None
        lacking = (whole - device) * size
        load_s = standing.host_latency_s + lacking * standing.host_token_s if lacking else 0.0
        rest = prompt - whole * size
        work_s = rest * (standing.token_s + standing.attention_s * prompt)
        first_step_s = 0.5 * steps.step_s + steps.itl_s + work_s
        cost_s = load_s + first_step_s + work_s * steps.batch + steps.cost_s
        queue_s = account.backlog_s(self.now) + standing.others_prefill_s
        on_node = self.prefixes(size).nodes.get(standing.node_id, 0)
        far = max(0, whole - max(device, on_node)) * size
        return Sink(cost_s, standing, steps, queue_s, load_s, first_step_s, far)

    def _join(self, sources: list[Source], sinks: list[Sink]) -> Iterator[Option]:
        """The shortlists against each other, and each of them with the best partners on its own node."""
        tolerance_s = TOLERANCE * min(source.computing.done_s for source in sources)
        sources = cheapest(sources, tolerance_s, self._turn_of, self.rng)
        sinks = cheapest(sinks, tolerance_s, self._turn_of, self.rng)
        source_at, sink_at = _first_by_node(sources), _first_by_node(sinks)
        for source in sources[:_SHORTLIST]:
            for sink in sinks[:_SHORTLIST]:
                yield self._pair(source, sink)
            near = sink_at.get(source.standing.node_id)
            if near is not None and near not in sinks[:_SHORTLIST]:
                yield self._pair(source, near)
        for sink in sinks[:_SHORTLIST]:
            other = source_at.get(sink.standing.node_id)
            if other is not None and other not in sources[:_SHORTLIST]:
                yield self._pair(other, sink)

    def _pair(self, source: Source, sink: Sink) -> Option:
        """Both halves and what lies between them: a pull that overlaps with prefill, but for its last chunk."""
        computed = source.computing
        transfer_s = 0.0
        if sink.lacking and source.standing.node_id != sink.standing.node_id:
            remote = self.standings.remote
            pull_s = sink.lacking * remote.token_s
            last_s = min(sink.lacking, source.standing.chunk_tokens) * remote.token_s
            transfer_s = remote.latency_s + max(last_s, pull_s - computed.compute_s)
        wait_s = max(0.0, sink.queue_s - computed.done_s - transfer_s)
        between_s = wait_s + transfer_s
        return Option(
            source.cost_s + sink.cost_s + between_s,
            computed.done_s + between_s + sink.load_s + sink.first_step_s,
            source.standing,
            sink.standing,
            computed,
            sink.decoding,
            wait_s,
            transfer_s,
            sink.load_s,
            sink.first_step_s,
        )

    # Ties

    def _turn_of(self, half: Source | Sink) -> int:
        return self.given.get(half.standing.replica_id, NEVER).turn

    def _turn(self, option: Option) -> int:
        computes = option.source or option.decode
        given = self.given
        return max(given.get(computes.replica_id, NEVER).turn, given.get(option.decode.replica_id, NEVER).turn)


def _cost(option: Option) -> float:
    return option.cost_s


def _first_by_node(halves: list[H]) -> dict[str, H]:
    """The first of each node, i.e. the cheapest."""
    first: dict[str, H] = {}
    for half in halves:
        first.setdefault(half.standing.node_id, half)
    return first
