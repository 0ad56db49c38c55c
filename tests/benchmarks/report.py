"""The gateway benchmark's figures as text and as JSON lines. Decides nothing, measures nothing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tests.benchmarks import machine
from tests.benchmarks.load import Result
from tests.benchmarks.spread import ratios, spread
from tests.benchmarks.targets.catalogue import REFERENCE, TargetKind
from tests.benchmarks.workloads import Workload


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload on one target in one round. `cpu_s` is the target's own processes."""

    result: Result
    cpu_s: float


Measurements = dict[tuple[str, str], list[Measured]]  # by target and workload, one entry a round


def as_text(measurements: Measurements, kinds: Sequence[TargetKind], loads: Sequence[Workload]) -> str:
    """Where, what, and one table for each workload."""
    lines = [machine.describe(), *(f"  {kind.name}: {kind.about}" for kind in kinds)]
    for load in loads:
        lines += ["", f"{load.name}: {load.about}", *_table(measurements, kinds, load)]
    return "\n".join(lines)


def _table(measurements: Measurements, kinds: Sequence[TargetKind], load: Workload) -> list[str]:
    rows = [["target", *(f.name for f in load.figures), f"x {REFERENCE}", f"CPU us/{load.per}", "client busy", "n"]]
    reference = measurements.get((REFERENCE, load.name))
    rows += [[kind.name, *_cells(measurements[kind.name, load.name], reference, load)] for kind in kinds]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _cells(rounds: Sequence[Measured], reference: Sequence[Measured] | None, load: Workload) -> list[str]:
    first = load.figures[0]
    cells = [str(spread([figure.read(m.result) for m in rounds])) for figure in load.figures]
    if reference is None:
        cells.append("-")
    else:
        ours, theirs = ([first.read(m.result) for m in side] for side in (rounds, reference))
        cells.append(str(ratios(ours, theirs)))
    cells.append(str(spread([1e6 * m.cpu_s / load.work(m.result) for m in rounds])))
    cells.append(f"{100 * max(m.result.client_cpu_s / m.result.elapsed_s for m in rounds):.0f} %")
    cells.append(f"{len(rounds)} x {spread([m.result.replies for m in rounds]).median:,.0f}")
    return cells


def as_json_lines(measurements: Measurements) -> str:
    """One line for each round, raw."""
    return "".join(
        json.dumps({"target": target, "workload": load, "cpu_s": m.cpu_s, **msgspec.to_builtins(m.result)}) + "\n"
        for (target, load), rounds in measurements.items()
        for m in rounds
    )
