"""The workers' last load reports as metrics, read at scrape time. Keeps nothing: a replica that is gone is not shown.

Every gateway shows every worker's report. Stores are shown by each worker of their node: aggregate with `max by (node)`
before anything is summed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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


_ALONE = {"store_slots": "store_capacity_slots"}
"""What gauges are called whose name is a family's, too."""

NODE_DIGITS = 12
"""How much of a node's id is shown, as in the names of stores."""


@dataclass(frozen=True, slots=True)
class _Whose:
    """Who reports."""

    replica_id: str
    node: str


class WorkerCollector(Collector):
    """Turns loads, by replica, into metric families labelled by replica, and those of stores by node as well."""

    def __init__(
        self, worker_loads: Callable[[], Mapping[str, Load]], worker_nodes: Callable[[], Mapping[str, str]]
    ) -> None:
        self._worker_loads = worker_loads
        self._worker_nodes = worker_nodes

    def describe(self) -> list[Metric]:
        """Nothing: names depend on what workers report."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, by name."""
        families: dict[str, Metric] = {}
        nodes = self._worker_nodes()
        for replica_id, load in sorted(self._worker_loads().items()):
            for name, value in _now(load).items():
                _gauge(families, f"baton_worker_{name}", "replica").add_metric([replica_id], value)
            for name, value in load.gauges.items():
                _add_gauge(families, _Whose(replica_id, nodes.get(replica_id, "")[:NODE_DIGITS]), name, value)
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


def _add_gauge(families: dict[str, Metric], whose: _Whose, name: str, value: float) -> None:
    """`store_slots/free` and its like are one family by state, the others stand for themselves."""
    if not name.startswith("store_"):
        _gauge(families, f"baton_worker_{_fit(name)}", "replica").add_metric([whose.replica_id], value)
        return
    family, *parts = name.split("/")
    labels = _LABELS.get(family, ())
    if len(parts) != len(labels):
        family, parts, labels = _ALONE.get(name, name), [], ()
    gauge = _gauge(families, f"baton_{_fit(family)}", "node", "replica", *labels)
    gauge.add_metric([whose.node, whose.replica_id, *parts], value)


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
