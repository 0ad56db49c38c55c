"""Who has which role, what the roles need, and how often that was changed, read at scrape time."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.dataplane.frames import WorkerInfo
from cluster.gateway.pool_keeper import PoolKeeper
from routing.fleet import Role


class PoolCollector(Collector):
    """Roles as the workers say, in every gateway; needs and changes of the one that decides, 0 in others."""

    def __init__(self, infos: Callable[[], Sequence[WorkerInfo]], keeper: PoolKeeper | None) -> None:
        self._infos = infos
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        """All families."""
        infos = self._infos()
        replicas = GaugeMetricFamily("baton_pool_replicas", "Connected workers by what they do.", labels=["role"])
        lent = GaugeMetricFamily("baton_pool_lent_replicas", "Of them, those started for the other.", labels=["role"])
        for role in Role:
            doing = [info for info in infos if info.role == role.value]
            replicas.add_metric([role.value], len(doing))
            lent.add_metric([role.value], sum(info.home not in (None, info.role) for info in doing))
        yield replicas
        yield lent
        if self._keeper is not None:
            yield from self._kept(self._keeper)

    def _kept(self, keeper: PoolKeeper) -> Iterator[Metric]:
        needs = GaugeMetricFamily("baton_pool_needed_replicas", "For how many there is work.", labels=["role"])
        needs.add_metric([Role.PREFILL.value], keeper.needs.prefill)
        needs.add_metric([Role.DECODE.value], keeper.needs.decode)
        yield needs
        changes = CounterMetricFamily("baton_pool_changes", "Workers lent, by their new role.", labels=["role"])
        for role in Role:
            changes.add_metric([role.value], keeper.changes[role])
        yield changes
