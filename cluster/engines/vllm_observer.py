"""What vLLM tells about itself after each step: its queue, its KV use and our connector's report.

vLLM calls the observer in the event loop of the engine's owner, in the order of the steps, so that the verdict on a
load is here before the first token of its request is taken.
"""

from dataclasses import dataclass, field
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.metrics.loggers import StatLoggerBase

from cluster.engines.vllm_ledger import Ledger
from kvtransfer.connector.counters import Report


@dataclass(slots=True)
class SchedulerState:
    """The scheduler after its latest step. Old when nothing has run since."""

    waiting: int = 0
    kv_usage: float = 0.0
    preemptions: int = 0
    steps: int = 0
    connector: dict[str, float] = field(default_factory=dict)


class Observer(StatLoggerBase):  # type: ignore[misc]  # vLLM is untyped here
    """vLLM's stat logger that only remembers."""

    def __init__(self, vllm_config: VllmConfig, engine_index: int, *, state: SchedulerState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        if iteration_stats is not None:
            self._state.preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is None:
            return
        self._state.steps += 1
        self._state.waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
        self._state.kv_usage = scheduler_stats.kv_cache_usage
        if scheduler_stats.kv_connector_stats:
            self._take(Report.from_data(scheduler_stats.kv_connector_stats))

    def _take(self, report: Report) -> None:
        self._state.connector.update(report.counters)
        for leg, verdicts in report.verdicts.items():
            self._ledger.judge(leg, verdicts)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
