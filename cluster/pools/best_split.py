"""Which number of prefill and decode replicas suits what they need. Pure."""

from cluster.pools.needs import Needs
from cluster.pools.split import Split

COMFORTABLE = 0.7
"""A role whose need is this share of its replicas has enough for what may come."""


def best_split(needs: Needs, now: Split, least: Split) -> Split:
    """The nearest to `now` at which no role is short by more than `COMFORTABLE`, else the one whose worse role is least
    short, with at least `least` of each.
    """
    total = now.prefill + now.decode
    splits = [Split(prefill, total - prefill) for prefill in range(least.prefill, total - least.decode + 1)]
    if not splits:
        return now

    def order(split: Split) -> tuple[float, int, int]:
        shortage = max(COMFORTABLE, needs.shortage(split))
        return shortage, abs(split.prefill - now.prefill), split.prefill

    return min(splits, key=order)
