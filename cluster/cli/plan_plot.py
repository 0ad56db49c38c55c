"""The picture of a plan: goodput over the ratio, a line for each load, the choice and its neighbours named."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cluster.planning.outcome import Slo
from cluster.planning.planner.topology import Topology
from cluster.planning.planner.trial import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#9ecae1", "#08519c", "#fd8d3c", "#a63603")
TICKS = 12
"""As many have room for their labels."""

PLATE = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
"""Under a name, so that lines do not run through it."""


def draw(trials: Sequence[Trial], chosen: Topology, load: float, slo: Slo, title: str, file: Path) -> None:
    """Write it; the suffix of `file` says how: .png or .svg."""
    figure = Figure(figsize=(9, 6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    loads = sorted({trial.ask.load for trial in trials})
    for colour, one in zip(COLOURS, loads, strict=False):
        _line(axes, [trial for trial in trials if trial.ask.load == one], one, colour)
    _name(axes, [trial for trial in trials if trial.ask.load == load], chosen)
    shown = _labelled(sorted({trial.topology for trial in trials}), chosen)
    axes.set_xticks([each.prefill for each in shown], [_tick(each) for each in shown])
    axes.set_xlabel("replicas for prefill : for decode (agg.: every replica does both)")
    axes.set_ylabel(f"goodput, requests/s (TTFT ≤ {slo.ttft_s:g} s and mean ITL ≤ {1000 * slo.itl_s:g} ms)")
    axes.set_title(title)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.09, y=0.15)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(title="load (dotted: all that comes)", loc="outside lower center", ncols=3, fontsize=7)
    figure.savefig(file)


def _line(axes: "Axes", trials: Sequence[Trial], factor: float, colour: str) -> None:
    split = [trial for trial in trials if trial.topology.prefill]
    together = [trial for trial in trials if not trial.topology.prefill]
    offered = max((trial.good_per_s / trial.share for trial in trials if trial.share), default=0.0)
    label = f"{factor:g} × the speed of the trace: {offered:.2f} requests/s come"
    axes.plot([t.topology.prefill for t in split], [t.good_per_s for t in split], "o-", color=colour, label=label)
    axes.plot([t.topology.prefill for t in together], [t.good_per_s for t in together], "s", color=colour)
    if offered:
        axes.axhline(offered, color=colour, linestyle=":", linewidth=1)


def _name(axes: "Axes", trials: Sequence[Trial], chosen: Topology) -> None:
    """Names at the choice, which has a star, and at what is one replica away from it."""
    for trial in trials:
        away = abs(trial.topology.prefill - chosen.prefill)
        if away > 1:
            continue
        point = trial.topology.prefill, trial.good_per_s
        text = f"{trial.topology}\n{trial.share:.0%} good"
        if not away:
            axes.plot(*point, "*", color="black", markersize=16, zorder=5, label=f"chosen: {chosen}")
            text = f"chosen: {text}"
        place = (0, 16) if not away else (34 * (trial.topology.prefill - chosen.prefill), -34)
        line = {"arrowstyle": "-", "linewidth": 0.6}
        axes.annotate(
            text, point, place, textcoords="offset points", ha="center", fontsize=8, arrowprops=line, bbox=PLATE
        )


def _labelled(shown: Sequence[Topology], chosen: Topology) -> list[Topology]:
    """Those whose labels have room: the choice, aggregated, and others far enough from both."""
    named = [shown[0], chosen]
    apart = chosen.replicas / TICKS
    return [each for each in shown if each in named or all(abs(each.prefill - n.prefill) >= apart for n in named)]


def _tick(topology: Topology) -> str:
    return f"{topology.prefill}:{topology.decode}" if topology.prefill else "agg."
