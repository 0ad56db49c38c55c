"""What the gateway's router knows, read at scrape time."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.coordinator.routing_choice import Routing


class RoutingCollector(Collector):
    """The index, the ledger and the prediction error of one gateway as metric families."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    def collect(self) -> Iterator[Metric]:
        """All families."""
        index, ledger = self._routing.index.statistics(), self._routing.ledger.statistics()
        yield _gauge("index_keys", "Different block keys in the index.", index.keys)
        yield _gauge("index_places", "Pairs of a block key and where it lies.", index.places)
        yield _gauge("index_bytes", "Memory the index takes, at most.", index.bytes)
        yield _gauge("index_promises", "Prompts in flight whose blocks are expected.", index.promised)
        replicas = GaugeMetricFamily("baton_index_replicas", "Replicas by what is known of them.", labels=["state"])
        replicas.add_metric(["exact"], index.exact)
        replicas.add_metric(["degraded"], index.degraded)
        yield replicas
        yield _counter("index_refused_keys", "Keys that were not taken in for want of room.", index.refused)
        yield _gauge("ledger_leases", "Requests with work reserved.", ledger.open_leases)
        yield _gauge("ledger_prefill_tokens", "Prompt tokens reserved.", ledger.reserved.prefill_tokens)
        yield _gauge("ledger_decode_tokens", "Output tokens reserved.", ledger.reserved.decode_tokens)
        yield _counter("ledger_released_twice", "Leases released twice: a bug.", ledger.released_twice)
        error = self._routing.error.median
        if error is not None:
            yield _gauge("ttft_prediction_error_median_ratio", "Median of the latest requests' errors.", error)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"baton_{name}", text)
    family.add_metric([], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    family = CounterMetricFamily(f"baton_{name}", text)
    family.add_metric([], value)
    return family
