"""Requests as they were recorded: when they came, how long they were, which blocks their prompts share.

A trace keeps columns, not objects: 12,031 prompts of 188 blocks each are two million keys.
"""

import csv
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cluster.planning.trace_keys import keys_of_blocks

MOONCAKE_BLOCK_TOKENS = 512
"""What one hash id of a Mooncake trace stands for."""


class TraceError(ValueError):
    """A trace file is not what it should be; the message names the line."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `keys` are of the whole blocks of its prompt; empty where the trace does not tell."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    keys: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival, with keys for blocks of `block_size_tokens`."""

    requests: Sequence[TraceRequest]
    block_size_tokens: int

    def __len__(self) -> int:
        return len(self.requests)

    def faster(self, factor: float) -> "Trace":
        """The same requests, arriving `factor` times as fast."""
        quick = [TraceRequest(r.arrival_s / factor, r.prompt_tokens, r.output_tokens, r.keys) for r in self.requests]
        return Trace(quick, self.block_size_tokens)

    def first(self, count: int) -> "Trace":
        """The first `count` requests."""
        return Trace(self.requests[:count], self.block_size_tokens)


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """`reuse` is the share of prompt tokens that an unlimited cache would have held."""

    requests: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    duration_s: float
    reuse: float


def statistics(trace: Trace) -> TraceStatistics:
    """What a reader is checked against."""
    seen: set[int] = set()
    reused = 0
    for request in trace.requests:
        known = next((i for i, key in enumerate(request.keys) if key not in seen), len(request.keys))
        reused += known * trace.block_size_tokens
        seen.update(request.keys)
    count = len(trace) or 1
    prompt_tokens = sum(r.prompt_tokens for r in trace.requests)
    return TraceStatistics(
        requests=len(trace),
        mean_prompt_tokens=prompt_tokens / count,
        mean_output_tokens=sum(r.output_tokens for r in trace.requests) / count,
        duration_s=trace.requests[-1].arrival_s - trace.requests[0].arrival_s if trace.requests else 0.0,
        reuse=reused / (prompt_tokens or 1),
    )


def read_mooncake(path: Path, block_size_tokens: int = 64) -> Trace:
    """A Mooncake trace: one JSON object a line, one hash id for each 512 tokens of the prompt.

    `block_size_tokens` must divide 512. Raises `TraceError`, or `OSError` for a file that cannot be read.
    """
    if MOONCAKE_BLOCK_TOKENS % block_size_tokens:
        raise TraceError(f"blocks of {block_size_tokens} tokens do not divide {MOONCAKE_BLOCK_TOKENS}")
    with path.open() as lines:
        rows = [_mooncake_row(line, number, path, block_size_tokens) for number, line in enumerate(lines, 1)]
    return Trace(sorted(rows, key=lambda row: row.arrival_s), block_size_tokens)


def _mooncake_row(line: str, number: int, path: Path, block_size_tokens: int) -> TraceRequest:
    try:
        row = json.loads(line)
        prompt_tokens, output_tokens = int(row["input_length"]), int(row["output_length"])
        arrival_s, ids = row["timestamp"] / 1000, array("q", row["hash_ids"])
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path.name}, line {number}: {error!r}") from error
    keys = keys_of_blocks(ids, MOONCAKE_BLOCK_TOKENS // block_size_tokens)
    return TraceRequest(arrival_s, prompt_tokens, output_tokens, keys[: prompt_tokens // block_size_tokens])


def read_azure(path: Path, block_size_tokens: int = 64) -> Trace:
    """An Azure 2023 trace: TIMESTAMP, ContextTokens, GeneratedTokens. It does not tell what prompts share.

    Raises `TraceError`, or `OSError` for a file that cannot be read.
    """
    with path.open(newline="") as lines:
        rows = sorted(_azure_rows(lines, path), key=lambda row: row.arrival_s)
    start_s = rows[0].arrival_s if rows else 0.0
    moved = [TraceRequest(row.arrival_s - start_s, row.prompt_tokens, row.output_tokens) for row in rows]
    return Trace(moved, block_size_tokens)


def _azure_rows(lines: Iterator[str], path: Path) -> Iterator[TraceRequest]:
    for number, row in enumerate(csv.DictReader(lines), 2):
        try:
            arrival_s = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            yield TraceRequest(arrival_s, int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(f"{path.name}, line {number}: {error!r}") from error
