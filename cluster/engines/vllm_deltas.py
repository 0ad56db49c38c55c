"""From vLLM's request outputs to our deltas. Reads vLLM's objects by attribute and imports none of them."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from cluster.dataplane.frames import Delta, LegReport, PositionLogprobs, TokenLogprob
from cluster.engines.vllm_ledger import Ledger, Leg
from cluster.errors import EngineFailed


class Seam(Protocol):
    """Where an output goes on that another engine began."""

    def pass_on(self, delta: Delta) -> Delta | None:
        """What of it is new; None when nothing is. May end the output."""
        ...


class DeltaStream:
    """The deltas of one leg, output by output. The leg's report goes with the last one."""

    def __init__(self, leg: Leg, ledger: Ledger, block_size: int, seam: Seam | None = None) -> None:
        self._leg = leg
        self._ledger = ledger
        self._block_size = block_size
        self._seam = seam
        self.ended = False

    def take(self, output: Any, now_s: float) -> Iterator[Delta]:
        """The deltas in one `RequestOutput`."""
        if self._leg.first_token_s is None:
            self._leg.first_token_s = now_s - self._leg.started_s
        cached = self._leg.cached_tokens(output.num_cached_tokens or 0, self._block_size)
        prompt_logprobs = [_position(p) for p in output.prompt_logprobs] if output.prompt_logprobs else None
        for position, completion in enumerate(output.outputs, start=1):
            delta = _delta(completion)
            self._ledger.tokens += len(delta.token_ids)
            if self._seam is not None:
                if (new := self._seam.pass_on(delta)) is None:
                    continue
                delta, self.ended = new, new.finish_reason is not None
            delta.num_cached_tokens, delta.prompt_logprobs = cached, prompt_logprobs
            if self.ended or (output.finished and position == len(output.outputs)):
                self.ended = True
                delta.report = self._report(output)
            yield delta

    def _report(self, output: Any) -> LegReport:
        recomputed = self._leg.recomputed(output.num_cached_tokens or 0, self._block_size)
        self._ledger.count_recomputed(recomputed)
        return LegReport(
            queued_s=_queued_s(output.metrics),
            first_token_s=self._leg.first_token_s or 0.0,
            loaded_blocks=self._leg.loaded_blocks(),
            recomputed_blocks=recomputed.blocks,
            recompute_reason=recomputed.reason,
        )


def _delta(completion: Any) -> Delta:
    if completion.finish_reason == "error":
        raise EngineFailed("the engine gave up the request")
    return Delta(
        index=completion.index,
        token_ids=list(completion.token_ids),
        text=completion.text,
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        logprobs=None if completion.logprobs is None else _positions(completion.logprobs),
        cumulative_logprob=completion.cumulative_logprob,
    )


def _positions(logprobs: Iterable[Any]) -> list[PositionLogprobs]:
    return [_candidates(position) for position in logprobs]


def _position(position: Any) -> PositionLogprobs | None:
    return None if position is None else _candidates(position)


def _candidates(position: Any) -> PositionLogprobs:
    return [TokenLogprob(token, entry.logprob, entry.rank, entry.decoded_token) for token, entry in position.items()]


def _queued_s(metrics: Any) -> float:
    """From the engine's queue to its first step; both clocks are the engine core's."""
    if metrics is None or not (metrics.queued_ts and metrics.scheduled_ts):
        return 0.0
    return max(0.0, float(metrics.scheduled_ts - metrics.queued_ts))
