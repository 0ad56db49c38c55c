"""The gateway's numbers for Prometheus: an `Observer` of every request, and the workers' own reports at each scrape.

Owns a registry of its own, so that several gateways may live in one process and vLLM's metrics stay out. Seconds,
bytes, tokens and blocks; every name begins with `baton_`.
"""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from cluster.coordinator.observer import Ended
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import LegReport, Role
from cluster.gateway.prediction_metrics import PredictionMetrics
from cluster.gateway.reuse_metrics import ReuseMetrics
from cluster.gateway.token_gaps import TokenGaps
from routing.fleet import Fleet
from routing.router import Decision, Predicted

_TTFT_S = (0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_ITL_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5)
_PART_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOTAL_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)


class GatewayMetrics:
    """Implements `cluster.coordinator.observer.Observer`. Labels have few values, so the registry stays small."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("baton_requests", "Requests by how they ended.", ["outcome"], registry=registry)
        self._attempts = Counter(
            "baton_attempts", "Placements: with a prefill leg, or on decode alone.", ["placement"], registry=registry
        )
        self._awaited = Counter(
            "baton_awaited", "Waits for blocks that another replica computes.", ["arrival"], registry=registry
        )
        self._resumed = Counter("baton_resumed", "Times an answer went on on another replica.", registry=registry)
        self._moved = Counter("baton_moved", "Times a request left a replica because it drains.", registry=registry)
        self._legs = Gauge("baton_legs_in_flight", "Legs in flight.", ["role"], registry=registry)
        self._ttft = _histogram(
            registry, "time_to_first_token", "From coming, so with time in line, to the first token.", _TTFT_S
        )
        self._itl = TokenGaps("baton_inter_token_seconds", "From token to token of an output.", _ITL_S)
        registry.register(self._itl)
        self._total = _histogram(registry, "request", "From coming to the end, of finished requests.", _TOTAL_S)
        self._parts = Histogram(
            "baton_first_token_part_seconds",
            "What the time to the first token was spent on.",
            ["part"],
            buckets=_PART_S,
            registry=registry,
        )
        self._prompt = Counter("baton_prompt_tokens", "Prompt tokens of requests that started.", registry=registry)
        self._generated = Counter("baton_generated_tokens", "Tokens that came from decode.", registry=registry)
        self._cached = Counter("baton_cached_tokens", "Prompt tokens decode did not compute.", registry=registry)
        self._kv = _KvMetrics(registry)
        self._prediction = PredictionMetrics(registry)
        self._outcome = cache(self._requests.labels)  # finding a label's child costs as much as counting on it
        self._placement = cache(self._attempts.labels)
        self._part = cache(self._parts.labels)
        self._role = {role: self._legs.labels(role) for role in ("prefill", "decode")}

    def reuse(self, fleet: Callable[[], Fleet]) -> ReuseMetrics:
        """What is to be told of ended requests, too. Called at most once."""
        return ReuseMetrics(self._registry, fleet)

    def collect_from(self, collector: Collector) -> None:
        """Show what `collector` has at each scrape."""
        self._registry.register(collector)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)

    def started(self, request: GenerationRequest) -> None:
        """See `Observer`."""
        self._prompt.inc(len(request.token_ids))

    def routed(self, decision: Decision) -> None:
        """See `Observer`."""
        self._placement("local" if decision.prefill is None else "disaggregated").inc()

    def awaited(self, arrival: str) -> None:
        """See `Observer`."""
        self._awaited.labels(arrival).inc()

    def legs(self, role: Role, change: int) -> None:
        """See `Observer`."""
        self._role[role].inc(change)

    def first_token(self, ttft_s: float) -> None:
        """See `Observer`."""
        self._ttft.observe(ttft_s)

    def predicted(self, predicted: Predicted, ttft_s: float) -> None:
        """See `Observer`."""
        self._prediction.observe(predicted, ttft_s)

    def tokens(self, count: int, gap_s: float | None) -> None:
        """See `Observer`. Tokens that came together are taken to have been made evenly over the gap."""
        self._generated.inc(count)
        if gap_s is not None:
            self._itl.observe(gap_s / count, count)

    def ended(self, ended: Ended) -> None:
        """See `Observer`."""
        self._outcome(ended.outcome).inc()
        self._cached.inc(ended.cached_tokens)
        self._resumed.inc(ended.resumes)
        self._moved.inc(ended.moves)
        if ended.outcome == "finished":
            self._total.observe(ended.timings.total_s)
        self._observe_parts(ended)
        if ended.prefill is not None:
            self._kv.moved(ended.prefill)
        if ended.decode is not None:
            self._kv.moved(ended.decode)
            self._kv.decoded(ended.decode)

    def refused(self, reason: str) -> None:
        """See `Observer`."""
        self._outcome(reason).inc()

    def _observe_parts(self, ended: Ended) -> None:
        timings = ended.timings
        parts = {
            "line": timings.line_s or None,
            "queue": timings.queue_s,
            "prefill": timings.prefill_s,
            "transfer": timings.transfer_s,
            "decode_wait": timings.decode_wait_s,
        }
        for part, seconds in parts.items():
            if seconds is not None:
                self._part(part).observe(seconds)


class _KvMetrics:
    """What became of the prompts' blocks, from the legs' reports."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._bytes = Counter("baton_kv_moved_bytes", "KV bytes pulled from another node's store.", registry=registry)
        self._pulled = Counter("baton_kv_pulled_blocks", "Blocks pulled from another node's store.", registry=registry)
        self._loaded = Counter("baton_kv_loaded_blocks", "Blocks engines took from their store.", registry=registry)
        self._recomputed = Counter(
            "baton_kv_recomputed_blocks", "Blocks prefill had announced, computed again.", ["reason"], registry=registry
        )
        self._handoffs = Counter("baton_handoffs", "Hand-offs by how they ended.", ["outcome"], registry=registry)

        self._fetches = Counter(
            "baton_fetches", "Fetches from another node's store, by how they ended.", ["outcome"], registry=registry
        )

    def moved(self, report: LegReport) -> None:
        """Add what came from another node for one leg."""
        self._bytes.inc(report.pulled_bytes)
        self._pulled.inc(report.pulled_blocks)
        if report.fetch_outcome:
            self._fetches.labels(report.fetch_outcome).inc()

    def decoded(self, report: LegReport) -> None:
        """Add what else one decode leg reports."""
        self._loaded.inc(report.loaded_blocks)
        if report.recomputed_blocks:
            self._recomputed.labels(report.recompute_reason or "unknown").inc(report.recomputed_blocks)
        if report.handoff_outcome:
            self._handoffs.labels(report.handoff_outcome).inc()


def _histogram(registry: CollectorRegistry, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"baton_{name}_seconds", what, buckets=buckets, registry=registry)
