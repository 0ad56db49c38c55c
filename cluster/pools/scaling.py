"""How many replicas each pool should have, for both at once: what lending between the roles cannot give. Pure.

The needs are those that lending goes by, in replicas, from memory, waiting work and the targets of latency. A pool's
replicas are those that were started for it, whatever they do now. While the sum suffices nothing is started: whoever is
in the wrong role can be lent, which takes no time. Where nobody is lent, each pool has to suffice alone.

Between `few` and `many` replicas nothing changes. More are wanted after `up_after_s` of too few, fewer after
`down_after_s` of too many, and then no fewer than would have done in all that time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from cluster.pools.best_split import COMFORTABLE
from cluster.pools.member import Member
from cluster.pools.needs import Needs, NeedsEstimate
from cluster.pools.split import Split

IDLE = 0.5
"""With a need of less than this share of its replicas a pool has too many."""


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Bounds of both pools; `spares` are replicas of each that are there for what may come."""

    least: Split
    most: Split
    spares: int = 0
    up_after_s: float = 10.0
    down_after_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Band:
    """What the needs allow: with less than `few` somebody has to wait, with more than `many` somebody is idle."""

    few: Split
    many: Split


@dataclass(frozen=True, slots=True)
class Targets:
    """What both pools are to have. `why` is for people, and empty where nothing changes."""

    replicas: Split
    why: str = ""


@dataclass(frozen=True, slots=True)
class ScalingChange:
    """One that was made. `at_s` is a Unix time."""

    at_s: float
    why: str


Sharing = Callable[[Split, Band], Split]
"""From what there is to what there should be: more of either pool or fewer of either, never both."""


def together(there: Split, band: Band) -> Split:
    """Replicas are lent between the pools: the sum counts, and whoever is furthest from what it needs changes."""
    total, few, many = (split.prefill + split.decode for split in (there, band.few, band.many))
    if total < few:
        return _grown(there, band.few, few - total)
    return _shrunk(there, band.many, total - many) if total > many else there


def apart(there: Split, band: Band) -> Split:
    """Nobody is lent: each pool counts for itself. While one needs more, the other is left alone."""
    more = Split(max(there.prefill, band.few.prefill), max(there.decode, band.few.decode))
    if more != there:
        return more
    return Split(min(there.prefill, band.many.prefill), min(there.decode, band.many.decode))


class Scaler:
    """Owns for how long there have been too few or too many."""

    def __init__(self, settings: ScalingSettings, estimate: NeedsEstimate, sharing: Sharing) -> None:
        self._settings = settings
        self._estimate = estimate
        self._sharing = sharing
        self._few_since: float | None = None
        self._many_since: float | None = None
        self._enough = settings.least

    def decide(self, members: Sequence[Member], there: Split, now: float) -> Targets:
        """At `now`, later than before. `there` is within the bounds and counts those that are being started as well,
        which `members` do not.
        """
        needs = self._estimate.observe(members, now)
        wanted = self._sharing(there, self._band(needs))
        if not self._lasts(there, wanted, now):
            return Targets(there)
        if not _exceeds(wanted, there):
            wanted = self._enough
        self._few_since = self._many_since = None
        return Targets(wanted, _why(there, wanted, needs)) if wanted != there else Targets(there)

    def _band(self, needs: Needs) -> Band:
        def of(full: float) -> Split:
            prefill, decode = (ceil(need / full) + self._settings.spares for need in (needs.prefill, needs.decode))
            return self._bounded(Split(prefill, decode))

        return Band(of(COMFORTABLE), of(IDLE))

    def _bounded(self, split: Split) -> Split:
        least, most = self._settings.least, self._settings.most
        return Split(
            min(max(split.prefill, least.prefill), most.prefill), min(max(split.decode, least.decode), most.decode)
        )

    def _lasts(self, there: Split, wanted: Split, now: float) -> bool:
        """Whether there have been too few, or too many, for long enough."""
        if wanted == there:
            self._few_since = self._many_since = None
            return False
        if _exceeds(wanted, there):
            self._many_since = None
            self._few_since = now if self._few_since is None else self._few_since
            return now >= self._few_since + self._settings.up_after_s
        self._few_since = None
        if self._many_since is None:
            self._many_since, self._enough = now, wanted
        self._enough = Split(max(self._enough.prefill, wanted.prefill), max(self._enough.decode, wanted.decode))
        return now >= self._many_since + self._settings.down_after_s


def _grown(there: Split, wanted: Split, by: int) -> Split:
    for _ in range(by):
        prefill_is_shorter = wanted.prefill - there.prefill > wanted.decode - there.decode
        there = Split(there.prefill + prefill_is_shorter, there.decode + (not prefill_is_shorter))
    return there


def _shrunk(there: Split, wanted: Split, by: int) -> Split:
    for _ in range(by):
        prefill_has_more = there.prefill - wanted.prefill > there.decode - wanted.decode
        there = Split(there.prefill - prefill_has_more, there.decode - (not prefill_has_more))
    return there


def _exceeds(one: Split, other: Split) -> bool:
    return one.prefill > other.prefill or one.decode > other.decode


def _why(there: Split, wanted: Split, needs: Needs) -> str:
    return (
        f"{there} to {wanted} started: prefill has work for {needs.prefill:.1f} replicas, decode for "
        f"{needs.decode:.1f} ({needs.bound})"
    )
