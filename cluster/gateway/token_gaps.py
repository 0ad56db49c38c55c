"""The time from token to token as a Prometheus histogram that many tokens enter at the price of one.

prometheus-client's own takes a lock for each bucket and sum of each single observation; tokens come merged, and all
from one thread. Invariant: the counts of the buckets add up to the number of gaps.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class TokenGaps(Collector):
    """A histogram of seconds. `bounds_s` are the upper bounds of its buckets, ascending; the last has none."""

    def __init__(self, name: str, about: str, bounds_s: Sequence[float]) -> None:
        self._name = name
        self._about = about
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, gap_s: float, count: int) -> None:
        """`count` gaps of `gap_s` each."""
        self._counts[bisect_left(self._bounds_s, gap_s)] += count
        self._sum_s += gap_s * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """For Prometheus: buckets hold what is up to their bound."""
        so_far, buckets = 0, []
        for bound_s, count in zip((*self._bounds_s, float("inf")), self._counts, strict=True):
            so_far += count
            bound = floatToGoString(bound_s)  # type: ignore[no-untyped-call]  # prometheus-client has no types here
            buckets.append((bound, float(so_far)))
        yield HistogramMetricFamily(self._name, self._about, buckets=buckets, sum_value=self._sum_s)
