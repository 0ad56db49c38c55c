"""The routing benchmark's figures as text and as JSON lines. Decides nothing, measures nothing."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from tests.benchmarks.routing_rows import Row

_HEAD = (
    "policy",
    "workers",
    "speed",
    "reuse",
    "TTFT mean s",
    "p99 s",
    "ITL p99 ms",
    "goodput",
    "imbalance",
    "pred. error",
    "wall s",
)


def as_text(rows: Sequence[Row]) -> str:
    """An aligned table, in the order of the rows."""
    cells = [_HEAD, *map(_cells, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.policy,
        str(row.topology),
        f"{row.speed:g}x",
        f"{row.reuse:.3f}",
        f"{row.ttft_mean_s:.3f}",
        f"{row.ttft_p99_s:.2f}",
        f"{1000 * row.itl_p99_s:.1f}",
        f"{row.good:,} of {row.requests:,}",
        f"{row.imbalance:.3f}",
        "-" if row.prediction_error is None else f"{100 * row.prediction_error:.0f} %",
        f"{row.wall_s:.0f}",
    )


def as_json_lines(rows: Sequence[Row]) -> str:
    """One line for each row."""
    return "".join(json.dumps({**asdict(row), "topology": str(row.topology)}) + "\n" for row in rows)
