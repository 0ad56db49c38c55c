"""Requests as they were recorded: when they came, how long they were, which blocks their prompts share.

A trace keeps columns, not objects: 12,031 prompts of 188 blocks each are two million keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass


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

    def window(self, start: int, count: int) -> "Trace":
        """`count` requests from number `start` on, the first of which comes at once."""
        chosen = self.requests[start : start + count]
        since_s = chosen[0].arrival_s if chosen else 0.0
        moved = [TraceRequest(r.arrival_s - since_s, r.prompt_tokens, r.output_tokens, r.keys) for r in chosen]
        return Trace(moved, self.block_size_tokens)


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
