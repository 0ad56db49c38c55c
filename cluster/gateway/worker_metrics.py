"""The workers' last load reports as metrics, read at scrape time. Keeps nothing: a replica that is gone is not shown.

Every gateway shows every worker's report. Stores are shown by each worker of their node; aggregate with `max`.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.dataplane.frames import Load

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_LABELS = {
    "store_slots": ("state",),
    "store_evicted_blocks": ("reason",),
    "store_checksum_failures": ("place",),
    "store_moved_blocks": ("direction", "medium"),
    "store_moved_bytes": ("direction", "medium"),
}
"""What the parts of a gauge's name after `/` mean, by family; see `cluster.workers.load`."""


class WorkerCollector(Collector):
    """Turns `Mapping[replica_id, Load]` into metric families labelled by replica."""

    def __init__(self, worker_loads: Callable[[], Mapping[str, Load]]) -> None:
        self._worker_loads = worker_loads

    def describe(self) -> list[Metric]:
        """Nothing: names depend on what workers report."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, by name."""
        families: dict[str, Metric] = {}
        for replica_id, load in sorted(self._worker_loads().items()):
            for name, value in _now(load).items():
                _gauge(families, f"baton_worker_{name}", "replica").add_metric([replica_id], value)
            for name, value in load.gauges.items():
                _add_gauge(families, replica_id, name, value)
            for name, value in load.counters.items():
                _counter(families, f"baton_worker_{_fit(name)}").add_metric([replica_id], value)
        yield from families.values()


def _now(load: Load) -> dict[str, float]:
    return {
        "running": load.running,
        "waiting": load.waiting,
        "held": load.held,
        "queued_prefill_tokens": load.queued_prefill_tokens,
        "kv_usage": load.kv_usage,
        "healthy": load.healthy,
        "draining": load.draining,
    }


def _add_gauge(families: dict[str, Metric], replica_id: str, name: str, value: float) -> None:
    """`store_slots/free` and its like are one family by state, the others stand for themselves."""
    family, *parts = name.split("/")
    labels = _LABELS.get(family, ())
    if parts and len(parts) == len(labels):
        _gauge(families, f"baton_{family}", "replica", *labels).add_metric([replica_id, *parts], value)
    elif name == "store_slots":
        _gauge(families, "baton_store_capacity_slots", "replica").add_metric([replica_id], value)
    else:
        prefix = "baton" if name.startswith("store_") else "baton_worker"
        _gauge(families, f"{prefix}_{_fit(name)}", "replica").add_metric([replica_id], value)


def _gauge(families: dict[str, Metric], name: str, *labels: str) -> GaugeMetricFamily:
    family = families.setdefault(name, GaugeMetricFamily(name, f"As workers report: {name}.", labels=labels))
    assert isinstance(family, GaugeMetricFamily), f"{name} is a counter, too"
    return family


def _counter(families: dict[str, Metric], name: str) -> CounterMetricFamily:
    key = name.removesuffix("_total")
    made = CounterMetricFamily(key, f"As workers report: {key}.", labels=["replica"])
    family = families.setdefault(f"{key}_total", made)
    assert isinstance(family, CounterMetricFamily), f"{name} is a gauge, too"
    return family


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)
