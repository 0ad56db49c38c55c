"""Reads traces: Mooncake's JSON lines, Azure's CSV, described workloads. Mistakes are named by file, line and field."""

import csv
import json
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from cluster.planning.synthetic import synthesize
from cluster.planning.trace import Trace, TraceRequest
from cluster.planning.trace_keys import keys_of_blocks
from configs.workload import load_workload

MOONCAKE_BLOCK_TOKENS = 512
"""What one hash id of a Mooncake trace stands for."""

SHOWN_CHARS = 40
AZURE_FIELDS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class TraceError(ValueError):
    """A trace file is not what it should be; the message names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a file, as a mapping of fields."""

    place: str
    fields: Mapping[str, object]

    def tokens(self, field: str, least: int) -> int:
        value = self._get(field)
        try:
            number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else -1
        except ValueError:
            number = -1
        if number < least:
            self.refuse(field, f"a whole number of tokens, at least {least}")
        return number

    def milliseconds(self, field: str) -> float:
        value = self._get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            self.refuse(field, "milliseconds since the start")
        return float(value)

    def moment(self, field: str) -> float:
        """Seconds since the epoch; Azure's times have seven digits after the point, which is one too many."""
        try:
            return datetime.fromisoformat(str(self._get(field))[:26]).replace(tzinfo=UTC).timestamp()
        except ValueError:
            self.refuse(field, "a time, e.g. 2023-11-16 18:15:46.6805900")

    def ids(self, field: str, count: int) -> "array[int]":
        value = self._get(field)
        allowed = f"{count} block ids, one for each {MOONCAKE_BLOCK_TOKENS} tokens of input_length"
        if not isinstance(value, list) or len(value) != count:
            self.refuse(field, allowed)
        try:
            ids = array("q", value)
        except (TypeError, OverflowError):
            self.refuse(field, allowed)
        if ids and min(ids) < 0:
            self.refuse(field, allowed)
        return ids

    def refuse(self, field: str, allowed: str) -> NoReturn:
        given = repr(self.fields[field])
        shown = given if len(given) <= SHOWN_CHARS else given[:SHOWN_CHARS] + "…"
        raise TraceError(f"{self.place}: {field}: given {shown}; allowed: {allowed}")

    def _get(self, field: str) -> object:
        if self.fields.get(field) is None:
            raise TraceError(f"{self.place}: {field}: is missing")
        return self.fields[field]


def read_trace(path: Path, block_size_tokens: int = 64) -> Trace:
    """Any of them, by the file's suffix: .jsonl is Mooncake's, .csv Azure's, .yaml a described workload.

    Raises `TraceError`, `configs.errors.ConfigError` for a description, or `OSError`.
    """
    match path.suffix:
        case ".jsonl":
            trace = read_mooncake(path, block_size_tokens)
        case ".csv":
            trace = read_azure(path, block_size_tokens)
        case ".yaml" | ".yml":
            trace = synthesize(load_workload(path), block_size_tokens)
        case _:
            raise TraceError(f"{path}: allowed: .jsonl (Mooncake), .csv (Azure) or .yaml (a described workload)")
    if not len(trace):
        raise TraceError(f"{path}: holds no request")
    return trace


def read_mooncake(path: Path, block_size_tokens: int = 64) -> Trace:
    """A Mooncake trace: one JSON object a line, one hash id for each 512 tokens of the prompt.

    `block_size_tokens` must divide 512. Raises `TraceError`, or `OSError` for a file that cannot be read.
    """
    if MOONCAKE_BLOCK_TOKENS % block_size_tokens:
        raise TraceError(f"blocks of {block_size_tokens} tokens do not divide {MOONCAKE_BLOCK_TOKENS}")
    with path.open(encoding="utf-8") as lines:
        rows = [
            _mooncake_row(_json(line, f"{path}, line {number}"), block_size_tokens)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    return Trace(sorted(rows, key=lambda row: row.arrival_s), block_size_tokens)


def _json(line: str, place: str) -> _Row:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{place}: is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TraceError(f"{place}: is not a JSON object")
    return _Row(place, found)


def _mooncake_row(row: _Row, block_size_tokens: int) -> TraceRequest:
    prompt_tokens = row.tokens("input_length", 1)
    ids = row.ids("hash_ids", -(-prompt_tokens // MOONCAKE_BLOCK_TOKENS))
    keys = keys_of_blocks(ids, MOONCAKE_BLOCK_TOKENS // block_size_tokens)
    return TraceRequest(
        row.milliseconds("timestamp") / 1000,
        prompt_tokens,
        row.tokens("output_length", 1),
        keys[: prompt_tokens // block_size_tokens],
    )


def read_azure(path: Path, block_size_tokens: int = 64) -> Trace:
    """An Azure 2023 trace: TIMESTAMP, ContextTokens, GeneratedTokens. It does not tell what prompts share.

    Raises `TraceError`, or `OSError` for a file that cannot be read.
    """
    with path.open(newline="", encoding="utf-8") as lines:
        rows = sorted(_azure_rows(lines, path), key=lambda row: row.arrival_s)
    start_s = rows[0].arrival_s if rows else 0.0
    moved = [TraceRequest(row.arrival_s - start_s, row.prompt_tokens, row.output_tokens) for row in rows]
    return Trace(moved, block_size_tokens)


def _azure_rows(lines: Iterator[str], path: Path) -> Iterator[TraceRequest]:
    reader = csv.DictReader(lines)
    if missing := [field for field in AZURE_FIELDS if field not in (reader.fieldnames or ())]:
        raise TraceError(f"{path}, line 1: {missing[0]}: is missing among the columns")
    for number, fields in enumerate(reader, 2):
        row = _Row(f"{path}, line {number}", fields)
        yield TraceRequest(row.moment("TIMESTAMP"), row.tokens("ContextTokens", 1), row.tokens("GeneratedTokens", 1))
