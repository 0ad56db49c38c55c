"""What a simulation brought, request by request and in sum."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.planning.itl_histogram import ItlHistogram
from cluster.planning.quantiles import mean, quantile


@dataclass(frozen=True, slots=True)
class Slo:
    """What a good request keeps: time to first token, and its mean time between tokens."""

    ttft_s: float = 2.0
    itl_s: float = 0.025


@dataclass(slots=True)
class Record:
    """One request. `computed_tokens` of prompt were computed for it, anywhere, again after losses too, and
    `fetched_tokens` came from another node's memory.

    Times are from the start; negative while it has not come so far. `predicted_ttft_s` is None where the router
    predicts nothing.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    decode: str = ""
    prefill: str | None = None
    predicted_ttft_s: float | None = None
    first_s: float = -1.0
    last_s: float = -1.0
    computed_tokens: int = 0
    fetched_tokens: int = 0
    attempts: int = 0

    @property
    def finished(self) -> bool:
        """Whether its last token came."""
        return self.last_s >= 0

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.first_s - self.arrival_s

    @property
    def latency_s(self) -> float:
        """Until the last token."""
        return self.last_s - self.arrival_s

    @property
    def itl_s(self) -> float:
        """Mean time between its tokens; 0 when there was one only."""
        return (self.last_s - self.first_s) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    def keeps(self, slo: Slo) -> bool:
        """Whether it was a good one."""
        return self.finished and self.ttft_s <= slo.ttft_s and self.itl_s <= slo.itl_s


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """One worker: how long it computed, how many requests it was given, and what for."""

    replica_id: str
    role: str
    requests: int
    busy_s: float
    computed_tokens: int
    preempted: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a table. `imbalance` is the busiest worker's time over the mean of its role, the worse role's.

    `reuse` is the share of prompt tokens that were not computed, `fetched` of those that came from other nodes' memory;
    `prediction_error` the median of |predicted - actual| over actual TTFT, 0 where nothing was predicted.
    """

    requests: int
    finished: int
    reuse: float
    fetched: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    itl_p99_s: float
    mean_itl_p99_s: float
    good: int
    imbalance: float
    local_prefills: int
    prediction_error: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """All records, in order of arrival, and the workers."""

    records: Sequence[Record]
    workers: Sequence[WorkerOutcome]
    itl: ItlHistogram
    duration_s: float

    def summary(self, slo: Slo) -> Summary:
        """Everything in a line."""
        finished = [r for r in self.records if r.finished]
        ttfts = [r.ttft_s for r in finished]
        prompt_tokens = sum(r.prompt_tokens for r in finished)
        return Summary(
            requests=len(self.records),
            finished=len(finished),
            reuse=1 - sum(r.computed_tokens for r in finished) / (prompt_tokens or 1),
            fetched=sum(r.fetched_tokens for r in finished) / (prompt_tokens or 1),
            ttft_mean_s=mean(ttfts),
            ttft_p50_s=quantile(ttfts, 0.5),
            ttft_p99_s=quantile(ttfts, 0.99),
            itl_p99_s=self.itl.quantile(0.99),
            mean_itl_p99_s=quantile([r.itl_s for r in finished if r.output_tokens > 1], 0.99),
            good=sum(r.keeps(slo) for r in finished),
            imbalance=self._imbalance(),
            local_prefills=sum(r.prefill is None for r in finished),
            prediction_error=quantile(_errors(finished), 0.5),
        )

    def _imbalance(self) -> float:
        by_role: dict[str, list[float]] = {}
        for worker in self.workers:
            by_role.setdefault(worker.role, []).append(worker.busy_s)
        return max((max(busy) / mean(busy) for busy in by_role.values() if sum(busy)), default=1.0)


def _errors(records: Sequence[Record]) -> list[float]:
    return [abs(r.predicted_ttft_s - r.ttft_s) / r.ttft_s for r in records if r.predicted_ttft_s is not None]
