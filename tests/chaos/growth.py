"""What processes took over a run, and whether it grew with the requests they answered. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 2**20
PER_REQUESTS = 100_000
MOST_MIB = 2.0
"""More than this per 100,000 requests is a leak: 21 bytes a request."""
MOST_DESCRIPTORS = 2.0
SETTLED = 0.5
"""The part of a run after which caches are full and allocators have what they need."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment. `requests`: how many the service had answered."""

    process: str
    at_s: float
    requests: int
    bytes: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.process}: {self.bytes / MIB:.1f} MiB, {self.descriptors} descriptors, {self.threads} threads"


@dataclass(frozen=True, slots=True)
class Growth:
    """One process over the settled part of a run; slopes per `PER_REQUESTS`."""

    process: str
    first: Sample
    last: Sample
    mib: float
    descriptors: float

    @property
    def is_flat(self) -> bool:
        """Whether it would go on for ever."""
        return self.mib <= MOST_MIB and self.descriptors <= MOST_DESCRIPTORS

    def __str__(self) -> str:
        verdict = "flat " if self.is_flat else "GROWS"
        return (
            f"{verdict} {self.process}: {self.mib:+.2f} MiB, {self.descriptors:+.2f} descriptors"
            f" (at {self.first.requests}: {self.first.bytes / MIB:.1f} MiB, {self.first.descriptors};"
            f" at {self.last.requests}: {self.last.bytes / MIB:.1f} MiB, {self.last.descriptors},"
            f" {self.last.threads} threads)"
        )


def growth_of(samples: Sequence[Sample]) -> list[Growth]:
    """Of each process that was there all the time."""
    most = max(sample.requests for sample in samples)
    settled = [sample for sample in samples if sample.requests >= SETTLED * most]
    return [_of([each for each in settled if each.process == name]) for name in sorted({s.process for s in settled})]


def _of(samples: Sequence[Sample]) -> Growth:
    requests = [sample.requests for sample in samples]
    memory = _slope(requests, [sample.bytes for sample in samples])
    descriptors = _slope(requests, [sample.descriptors for sample in samples])
    return Growth(samples[0].process, samples[0], samples[-1], memory * PER_REQUESTS / MIB, descriptors * PER_REQUESTS)


def _slope(x: Sequence[int], y: Sequence[int]) -> float:
    return statistics.linear_regression(x, y).slope if len(set(x)) > 1 else 0.0
