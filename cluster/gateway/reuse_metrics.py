"""Where the tokens of prompts came from, and how long loading took against what the router had expected.

Told of ended requests; only of those that finished where they began is anything counted.
"""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from cluster.coordinator.observer import Ended
from routing.fleet import Fleet

_LOAD_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class PromptSources:
    """Tokens of one prompt, by where the replica that computed the rest had them; they sum to the prompt's.

    `device` is its own cache, `host` its node's store, `remote` another node's store.
    """

    device: int
    host: int
    remote: int
    computed: int


@dataclass(frozen=True, slots=True)
class LoadTime:
    """Of one hand-off, in seconds: what decode waited for blocks after prefill, and what its engine took to load."""

    predicted_s: float
    actual_s: float


class ReuseMetrics:
    """Implements `cluster.coordinator.observer.EndListener`. `fleet` is what the router sees, now."""

    def __init__(self, registry: CollectorRegistry, fleet: Callable[[], Fleet]) -> None:
        self._fleet = fleet
        self._sources = Counter(
            "baton_prompt_source_tokens",
            "Prompt tokens by where they came from: device, host (the node's store), remote (another's), computed.",
            ["source"],
            registry=registry,
        )
        self._loads = Histogram(
            "baton_handoff_load_seconds",
            "Loading a hand-off's blocks once prefill had ended: predicted and actual.",
            ["kind"],
            buckets=_LOAD_S,
            registry=registry,
        )

    def ended(self, ended: Ended) -> None:
        """See `EndListener`."""
        if ended.outcome != "finished" or ended.resumes:
            return
        if (sources := prompt_sources(ended, self._fleet())) is not None:
            self._sources.labels("device").inc(sources.device)
            self._sources.labels("host").inc(sources.host)
            self._sources.labels("remote").inc(sources.remote)
            self._sources.labels("computed").inc(sources.computed)
        if (load := load_time(ended)) is not None:
            self._loads.labels("predicted").observe(load.predicted_s)
            self._loads.labels("actual").observe(load.actual_s)


def prompt_sources(ended: Ended, fleet: Fleet) -> PromptSources | None:
    """None when the replica that computed the prompt made no report, or is gone. Pure."""
    decision = ended.placement.decision
    if decision is None:
        return None
    replica = fleet.replicas.get(decision.prefill or decision.decode)
    report, cached = (ended.decode, ended.cached_tokens)
    if decision.prefill is not None:
        report, cached = ended.prefill, ended.prefill_cached_tokens
    if replica is None or report is None:
        return None
    loaded = min(cached, report.loaded_blocks * replica.block_size_tokens)
    remote = min(loaded, report.pulled_blocks * replica.block_size_tokens)
    return PromptSources(cached - loaded, loaded - remote, remote, ended.prompt_tokens - cached)


def load_time(ended: Ended) -> LoadTime | None:
    """Of a hand-off that came whole after a prefill that loaded nothing itself; None for all others. Pure."""
    decision, prefill, decode = ended.placement.decision, ended.prefill, ended.decode
    if decision is None or decision.predicted is None or prefill is None or decode is None:
        return None
    if prefill.loaded_blocks or decode.recomputed_blocks or not decode.loaded_blocks:
        return None
    engine_s = decode.first_token_s - decode.queued_s - decision.predicted.first_step_s
    return LoadTime(decision.predicted.load_s, (ended.timings.transfer_s or 0.0) + max(0.0, engine_s))
