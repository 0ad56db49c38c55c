"""Shows what stores answered: tables for people, JSON for programs."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from cluster.cli.stores import Drops, Listing, Of, Verification
from kvtransfer.inspection import Oldest, SlotLine, StoreStatistics

WIDTH = 160
KEY_DIGITS = 16


def to_json(found: Sequence[Of[Any]]) -> str:
    """One object for each store; keys of blocks in hexadecimal."""
    return json.dumps([_plain(each) for each in found], indent=2)


def statistics(found: Sequence[Of[StoreStatistics]]) -> str:
    """A column for each store."""
    table = Table("", *(f"{each.node}\n{each.address}" for each in found), box=None, pad_edge=False)
    columns = [dict(_figures(each.result)) for each in found]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, *(column.get(name, "0") for column in columns))
    return _rendered(table)


def listing(found: Sequence[Of[Listing]]) -> str:
    """A row for each block."""
    names = ("node", "slot", "key", "state", "bytes", "age s", "pins", "label", "writer")
    table = Table(*names, box=None, pad_edge=False)
    for each in found:
        for line in each.result.lines:
            table.add_row(each.node, *_cells(line, each.result.slot_bytes))
    more = [f"and more on {each.node}: --limit shows them" for each in found if each.result.more]
    return "\n".join([_rendered(table), *more])


def drops(found: Sequence[Of[Drops]]) -> str:
    """A line for each store."""
    return "\n".join(
        f"{each.node}: {each.result.dropped} blocks dropped, {each.result.in_use} in use and kept" for each in found
    )


def verifications(found: Sequence[Of[Verification]]) -> str:
    """A line for each store, and one for each corrupt block."""
    lines = []
    for each in found:
        result = each.result
        lines.append(f"{each.node}: {result.looked_at} blocks verified, {len(result.corrupt)} corrupt and forgotten")
        lines += [f"  {key.hex()}" for key in result.corrupt]
    return "\n".join(lines)


def _figures(stats: StoreStatistics) -> Iterator[tuple[str, str]]:
    used = stats.slots - stats.free_slots
    yield "epoch", stats.epoch
    yield "bytes used / all", f"{used * stats.slot_bytes:,} / {stats.slots * stats.slot_bytes:,}"
    yield (
        "slots free / writing / committed / pinned",
        " / ".join(
            str(slots) for slots in (stats.free_slots, stats.writing_slots, stats.committed_slots, stats.pinned_slots)
        ),
    )
    yield "pins", str(stats.pins)
    yield "oldest pin", _hold(stats.oldest_pin)
    yield "oldest slot being written", _hold(stats.oldest_writing)
    yield "hand-offs open / failed / late", f"{stats.handoffs} / {stats.failed_handoffs} / {stats.late_handoffs}"
    yield "connections", str(stats.connections)
    yield "blocks committed", f"{stats.committed_blocks:,}"
    for reason, blocks in sorted(stats.evicted.items()):
        yield f"blocks gone: {reason}", f"{blocks:,}"
    for place, blocks in sorted(stats.checksum_failures.items()):
        yield f"blocks corrupt: {place}", f"{blocks:,}"
    for moved in sorted(stats.traffic, key=lambda moved: (moved.direction, moved.medium)):
        yield f"{moved.direction} by {moved.medium}", f"{moved.blocks:,} blocks, {moved.bytes:,} bytes"
    for name, blocks in msgspec.structs.asdict(stats).items():
        if name.startswith("disk_") and blocks:
            yield name.replace("_", " "), f"{blocks:,}"


def _hold(oldest: Oldest | None) -> str:
    return "none" if oldest is None else f"{oldest.age_s:.1f} s, {oldest.owner}"


def _cells(line: SlotLine, slot_bytes: int) -> tuple[str, ...]:
    label = "" if line.label is None else f"{line.label:016x}"
    key = line.key.hex()[:KEY_DIGITS]
    return (str(line.slot), key, line.state, str(slot_bytes), f"{line.age_s:.1f}", str(line.pins), label, line.writer)


def _rendered(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=WIDTH, markup=False, emoji=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, msgspec.Struct):
        return {name: _plain(each) for name, each in msgspec.structs.asdict(value).items() if name != "id"}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
