"""What the processes of a service take: memory of their own (arenas are shared and not counted) and descriptors."""

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.parts import Part, Parts

MEASURED = ("gateway", "prefill", "decode", "store")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Taken:
    """The median of a kind's processes."""

    processes: int
    bytes: float
    descriptors: float

    def __str__(self) -> str:
        return f"{self.processes} × {self.bytes / MIB:.1f} MiB, {self.descriptors:g} descriptors"


def taken(parts: Parts) -> Mapping[str, Taken]:
    """Now, by kind."""
    return {kind: _median(parts.of(kind)) for kind in MEASURED}


def line(seen: Mapping[str, Taken]) -> str:
    """All kinds on one line."""
    return "memory: " + "; ".join(f"{kind} {each}" for kind, each in seen.items())


def growth(before: Mapping[str, Taken], after: Mapping[str, Taken]) -> dict[str, float]:
    """After against before, by kind: 1.0 is the same."""
    return {kind: after[kind].bytes / before[kind].bytes for kind in MEASURED}


def _median(parts: list[Part]) -> Taken:
    assert parts, "every kind of process runs"
    return Taken(
        len(parts),
        statistics.median(own_bytes(part.pid) for part in parts),
        statistics.median(len(os.listdir(f"/proc/{part.pid}/fd")) for part in parts),
    )


def own_bytes(pid: int) -> int:
    """Anonymous resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
