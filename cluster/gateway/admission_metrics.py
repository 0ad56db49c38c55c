"""What waits at the gateway's door and what was refused there, read at scrape time."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from cluster.coordinator.admission.queue import AdmissionStatistics, Refusal


class AdmissionCollector(Collector):
    """One gateway's admission as metric families. Clients choose priorities, so they are told apart by sign only."""

    def __init__(self, statistics: Callable[[], AdmissionStatistics]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """All families."""
        now = self._statistics()
        yield GaugeMetricFamily("baton_outputs_in_flight", "Outputs of requests that were let in.", now.in_flight)
        yield _by_class("waiting_requests", "Requests that wait for their turn.", now.waiting_requests)
        yield _by_class("waiting_tokens", "Tokens of requests that wait for their turn.", now.waiting_tokens)
        wait = SummaryMetricFamily("baton_admission_wait_seconds", "In line, of requests that waited and were let in.")
        wait.add_metric([], now.waited, now.waited_s)
        yield wait
        refused = CounterMetricFamily("baton_refused", "Requests answered with 429, by reason.", labels=["reason"])
        for reason in Refusal:
            refused.add_metric([reason.value], now.refused.get(reason, 0))
        yield refused


def _by_class(name: str, text: str, values: Mapping[int, int]) -> Metric:
    family = GaugeMetricFamily(f"baton_{name}", text, labels=["priority"])
    sums = {"sooner": 0, "normal": 0, "later": 0}
    for priority, value in values.items():
        sums["normal" if priority == 0 else "sooner" if priority < 0 else "later"] += value
    for label, value in sums.items():
        family.add_metric([label], value)
    return family
