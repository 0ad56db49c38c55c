"""What ended requests teach the router: how long computing, loading and decoding really took, and how much was said.

Only what says something about one part alone is learnt from. A prompt that was computed, not loaded, and did not have
to wait teaches prefill: engines pack the end of one prompt and the beginning of the next into one step, which would
count for both. A hand-off that arrived whole at an idle engine teaches loads: at a busy one everything waits. A stream
of a few tokens or more teaches decode steps.
"""

from collections.abc import Callable, Iterator

from cluster.coordinator.observer import Ended
from cluster.dataplane.frames import LegReport
from routing.fleet import Fleet, Replica
from routing.output_lengths import OutputLengths
from routing.prediction_error import PredictionError
from routing.rates import Decoded, Loaded, Observation, Prefilled, Rates

ENOUGH_TOKENS = 8
"""A stream shorter than this says little about the time of a decode step."""


ALONE = 0.05
"""A prompt whose turn came within this share of its computing time was computed alone."""

LEAST_LOAD_S = 0.001
"""A load is what is left of a longer time, which may be nothing."""


class Learner:
    """Implements `cluster.coordinator.observer.EndListener`. `fleet` is what the router sees, now."""

    def __init__(
        self, rates: Rates, lengths: OutputLengths, error: PredictionError, fleet: Callable[[], Fleet]
    ) -> None:
        self._rates = rates
        self._lengths = lengths
        self._error = error
        self._fleet = fleet

    def ended(self, ended: Ended) -> None:
        """See `EndListener`."""
        if ended.outcome != "finished":
            return
        self._lengths.observe(ended.request.max_tokens, ended.generated_tokens // ended.request.outputs)
        placement = ended.placement
        if placement.decision is None or ended.resumes:
            return
        if placement.decision.predicted is not None and placement.ttft_s is not None:
            self._error.observe(placement.decision.predicted.ttft_s, placement.ttft_s)
        for seen in observations(ended, self._fleet()):
            self._rates.observe(seen)


def observations(ended: Ended, fleet: Fleet) -> Iterator[Observation]:
    """What one finished request says of its replicas, as far as they are still there. Pure."""
    decision = ended.placement.decision
    assert decision is not None, "it was routed"
    prefill = fleet.replicas.get(decision.prefill) if decision.prefill is not None else None
    decode = fleet.replicas.get(decision.decode)
    if prefill is not None and ended.prefill is not None and not ended.prefill.loaded_blocks:
        yield from _prefilled(prefill, ended, ended.prefill_cached_tokens, ended.prefill)
    if decode is not None and ended.decode is not None:
        yield from _of_decode(ended, ended.decode, decode, decision.prefill is None)


def _of_decode(ended: Ended, report: LegReport, decode: Replica, is_local: bool) -> Iterator[Observation]:
    loaded_tokens = report.loaded_blocks * decode.block_size_tokens
    alone = decode.load.running <= 1
    if is_local and not loaded_tokens and alone:
        yield from _prefilled(decode, ended, ended.cached_tokens, report)
    predicted = ended.placement.decision.predicted if ended.placement.decision is not None else None
    if loaded_tokens and not report.recomputed_blocks and not is_local and alone and predicted is not None:
        load_s = max(LEAST_LOAD_S, report.first_token_s - predicted.first_step_s)
        yield Loaded(decode.replica_id, decode.role, loaded_tokens, load_s)
    if ended.itl_s is not None and ended.generated_tokens >= ENOUGH_TOKENS:
        yield Decoded(decode.replica_id, decode.role, max(1, decode.load.running), _context(decode, ended), ended.itl_s)


def _prefilled(replica: Replica, ended: Ended, cached: int, report: LegReport) -> Iterator[Prefilled]:
    seconds = report.first_token_s - report.queued_s
    if report.queued_s <= ALONE * seconds:
        yield Prefilled(replica.replica_id, replica.role, ended.prompt_tokens - cached, cached, seconds)


def _context(decode: Replica, ended: Ended) -> float:
    """Tokens of context in the replica's batch: the blocks in use, as last reported, and at least the request's own."""
    own = ended.prompt_tokens + ended.generated_tokens / 2
    return max(own, decode.load.kv_usage * decode.kv_blocks * decode.block_size_tokens)
