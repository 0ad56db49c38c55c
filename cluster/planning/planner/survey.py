"""Goodput over ratio and load around a choice: what the picture of a plan shows."""

from collections.abc import Sequence

from cluster.planning.planner.topology import Topology
from cluster.planning.planner.trial import Ask, Trial, Try, Window

LOADS = (0.5, 1.0, 1.5, 2.0)
MOST_RATIOS = 11


def survey(chosen: Topology, windows: tuple[Window, ...], load: float, attempt: Try) -> list[Trial]:
    """Trials of `ratios` at `LOADS` times the planned load, all on the same windows."""
    return attempt([Ask(topology, windows, load * factor) for factor in LOADS for topology in ratios(chosen)])


def ratios(chosen: Topology) -> Sequence[Topology]:
    """Aggregated, the choice and its neighbours, and others evenly over the whole range."""
    replicas = chosen.replicas
    near = {chosen.prefill + step for step in (-1, 0, 1)}
    spread = {round(1 + (replicas - 2) * part / (MOST_RATIOS - 5)) for part in range(MOST_RATIOS - 4)}
    wanted = {0, *near, *spread}
    return [Topology(prefill, replicas - prefill) for prefill in sorted(wanted) if 0 <= prefill < replicas]
