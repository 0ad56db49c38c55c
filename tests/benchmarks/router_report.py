"""The router benchmark's figures as text. Decides nothing, measures nothing."""

from collections.abc import Sequence

from tests.benchmarks.spread import ratios, show, spread

Figures = dict[tuple[str, str, str], list[float]]
"""One entry a round, by side, subject and part or clock. Microseconds; of memory, bytes a block."""


def as_text(figures: Figures, blocks: int) -> str:
    """One table for the index, one for decisions."""
    subjects = list(dict.fromkeys(subject for _, subject, _ in figures if "workers" in subject))
    lines = [f"The index alone: {blocks:,} blocks of 16 tokens over 64 workers; RadixTree beside it"]
    lines += _table([_HEAD, *_index_rows(figures)])
    lines += _memory(figures)
    lines.append(f"Whole decisions, {blocks:,} blocks indexed, us: hash from token ids, look up, score, reserve,")
    lines.append("complete, release; SelectionService beside it (half of our workers prefill, half decode)")
    lines += _table([_HEAD, *(_decision(figures, subject) for subject in subjects)])
    lines.append("Ours in parts, us: hash · look up and score · reserve, complete, release")
    lines += _table([_parts(figures, subject) for subject in subjects])
    return "\n".join(lines)


_HEAD = ["", "ours", "dynamo", "ratio", "goal", "n"]


def _index_rows(figures: Figures) -> list[list[str]]:
    rows = [_row(figures, "lookup of 256 blocks, us", "lookup", "wall_us", "at most 0.5")]
    for event in ("stored", "removed"):
        for clock, name in (("wall_us", "a second"), ("cpu_us", "a second of CPU")):
            label = f"blocks {event} {name}, millions"
            rows.append(_row(figures, label, event, clock, "at least 1.5", rate=True))
            rows.append(_row(figures, "  with the wire's decoding", event, clock, "", rate=True, prefix="wire_"))
    return rows


def _decision(figures: Figures, subject: str) -> list[str]:
    return _row(figures, subject, subject, "cycle", "at most 0.5" if subject.startswith("64 ") else "")


def _row(
    figures: Figures, label: str, subject: str, part: str, goal: str, rate: bool = False, prefix: str = ""
) -> list[str]:
    ours = _values(figures, "ours", subject, prefix + part, rate)
    theirs = _values(figures, "dynamo", subject, part, rate)
    beside = [str(spread(theirs)), str(ratios(ours, theirs))] if theirs else ["-", "-"]
    return [label, str(spread(ours)), *beside, goal, str(len(ours))]


def _values(figures: Figures, side: str, subject: str, part: str, rate: bool) -> list[float]:
    return [1 / us if rate else us for us in figures.get((side, subject, part), ())]


def _parts(figures: Figures, subject: str) -> list[str]:
    return [subject, *(str(spread(figures["ours", subject, part])) for part in ("hash", "route", "ledger"))]


def _memory(figures: Figures) -> list[str]:
    sizes = [f"ours {show(figures['ours', 'memory', 'resident'][0])}"]
    if ("dynamo", "memory", "resident") in figures:
        sizes.append(f"dynamo {show(figures['dynamo', 'memory', 'resident'][0])}")
    accounted = show(figures["ours", "memory", "accounted"][0])
    return [f"  bytes a block, by resident size: {', '.join(sizes)}; our own account, an upper bound: {accounted}"]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
