"""What was learnt about how long things really take: corrections of the profile, per replica.

A correction is a factor: observed over predicted by the profile. It is learnt in logarithms, so that twice and half as
long weigh the same; an outlier moves it by a bounded step, and the factor itself is bounded. A replica's own factor
counts as far as it differs from its pool's by more than noise does (`NOISE`), and the more the oftener it was seen:
equal replicas stay equal, and requests do not all go to the one that was luckiest. A new one starts from its pool's,
and a pool that was never seen at something from the other pool's: one profile is wrong for both.
"""

import math
from dataclasses import dataclass, field
from enum import Enum

from routing.fleet import Role
from routing.profile import Profile

NOISE = 0.1
"""Replicas whose factors differ by less than this, in natural logarithms (10 %), are taken to be equal."""

_OTHER = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}
_LONGEST_STEP = 0.5
_BOUND = math.log(64.0)
_WEIGHT = 0.1
_FIRST = 5
_TRUST_AFTER = 4


class Metric(Enum):
    """What is predicted and corrected."""

    PREFILL = "prefill"
    LOAD = "load"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A replica computed `computed_tokens` after `context_tokens`, alone, in `seconds` (waiting not counted)."""

    replica_id: str
    role: Role
    computed_tokens: int
    context_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """A replica loaded the KV of `tokens` from its node's store in `seconds`."""

    replica_id: str
    role: Role
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decode step of `batch` requests, with `context_tokens` between them, took `seconds`."""

    replica_id: str
    role: Role
    batch: float
    context_tokens: float
    seconds: float


Observation = Prefilled | Loaded | Decoded


@dataclass(slots=True)
class _Estimate:
    """The logarithm of a factor: the median of the first few observations, then a mean that forgets."""

    value: float = 0.0
    count: int = 0
    first: list[float] = field(default_factory=list)

    def observe(self, log_ratio: float) -> None:
        self.count += 1
        if self.count <= _FIRST:
            self.first.append(log_ratio)
            moved = sorted(self.first)[len(self.first) // 2]
        else:
            moved = self.value + _WEIGHT * min(max(log_ratio - self.value, -_LONGEST_STEP), _LONGEST_STEP)
        self.value = min(max(moved, -_BOUND), _BOUND)


class Rates:
    """Owns every correction. `version` grows with each observation."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.version = 0
        self._pools: dict[tuple[Role, Metric], _Estimate] = {}
        self._replicas: dict[str, dict[Metric, _Estimate]] = {}

    def observe(self, seen: Observation) -> None:
        """Learn from one measurement. Without a duration there is nothing to learn."""
        metric, expected_s = self._expected(seen)
        if seen.seconds <= 0 or expected_s <= 0:
            return
        log_ratio = math.log(seen.seconds / expected_s)
        self._pools.setdefault((seen.role, metric), _Estimate()).observe(log_ratio)
        self._replicas.setdefault(seen.replica_id, {}).setdefault(metric, _Estimate()).observe(log_ratio)
        self.version += 1

    def forget(self, replica_id: str) -> None:
        """The replica is gone for good."""
        self._replicas.pop(replica_id, None)

    def factor(self, replica_id: str, role: Role, metric: Metric) -> float:
        """By how much longer than the profile says a replica takes."""
        pool = self._pools.get((role, metric)) or self._pools.get((_OTHER[role], metric))
        if pool is None:
            return 1.0
        own = self._replicas.get(replica_id, {}).get(metric)
        return math.exp(pool.value + (_beyond_noise(own, pool.value) if own else 0.0))

    def _expected(self, seen: Observation) -> tuple[Metric, float]:
        match seen:
            case Prefilled():
                return Metric.PREFILL, self.profile.prefill_s(seen.computed_tokens, seen.context_tokens)
            case Loaded():
                return Metric.LOAD, self.profile.load_s(seen.tokens)
            case Decoded():
                return Metric.STEP, self.profile.step_s(seen.batch, seen.context_tokens)


def _beyond_noise(own: _Estimate, pool: float) -> float:
    """The part of a replica's difference from its pool that noise does not explain."""
    difference = own.value - pool
    trusted = own.count / (own.count + _TRUST_AFTER) * max(0.0, abs(difference) - NOISE)
    return math.copysign(trusted, difference)
