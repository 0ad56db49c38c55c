"""One replica's side of the ledger: what open leases reserve there, and how far its prefill queue has come.

An engine computes prompts in order of arrival, so the lease in front of the queue has been worked on since it got
there: that time is taken off what it reserved, but never more than all of it. A lease that takes longer than predicted
counts nothing then, and those behind it count in full.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from routing.books import Booked


@dataclass(frozen=True, slots=True)
class Reserved:
    """Work reserved on one replica. `requests` counts as engines do: one for each output that is decoded.

    `prefill_s` is the engine's time for the `prefill_tokens`; `context_tokens` are what decode steps read; `blocks` are
    device blocks that decoding requests will hold.
    """

    prefill_tokens: int = 0
    decode_tokens: int = 0
    requests: int = 0
    prefill_s: float = 0.0
    context_tokens: int = 0
    blocks: int = 0

    def __add__(self, other: "Reserved") -> "Reserved":
        return Reserved(
            self.prefill_tokens + other.prefill_tokens,
            self.decode_tokens + other.decode_tokens,
            self.requests + other.requests,
            self.prefill_s + other.prefill_s,
            self.context_tokens + other.context_tokens,
            self.blocks + other.blocks,
        )


NOTHING = Reserved()


class Given(NamedTuple):
    """What a replica was ever given, and when last: see `Booked`."""

    turn: int = -1
    requests: int = 0
    prefill_s: float = 0.0


NEVER = Given()


class Account:
    """Totals of the parts on one replica; plain numbers, because the router reads all of them for every request.

    Invariant: the totals are the sums of what was added and not yet taken away; `queue` holds the prompts that are not
    computed yet, in order of arrival, as (tokens, seconds).
    """

    __slots__ = (
        "blocks",
        "context_tokens",
        "decode_tokens",
        "decoding",
        "front_s",
        "front_since",
        "prefill_s",
        "prefill_tokens",
        "queue",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.decoding = 0
        self.decode_tokens = 0
        self.context_tokens = 0
        self.blocks = 0
        self.prefill_tokens = 0
        self.prefill_s = 0.0
        self.queue: dict[int, tuple[int, float]] = {}
        self.front_s = 0.0
        self.front_since: float | None = None

    def backlog_s(self, now: float) -> float:
        """The engine's time for the prompts in the queue, less what was done of the one in front.

        Never negative, although sums of floats that should cancel do not quite.
        """
        if self.front_since is None:
            return self.prefill_s
        done_s = min(now - self.front_since, self.front_s)
        if done_s <= 0:
            return self.prefill_s
        left_s = self.prefill_s - done_s
        return left_s if left_s > 0 else 0.0

    def enqueue(self, number: int, tokens: int, seconds: float, now: float | None) -> None:
        """A prompt to compute, last in line."""
        if not self.queue:
            self.front_s, self.front_since = seconds, now
        self.queue[number] = (tokens, seconds)
        self.prefill_tokens += tokens
        self.prefill_s += seconds

    def dequeue(self, number: int, now: float | None) -> None:
        """A prompt was computed, or never will be."""
        was_front = next(iter(self.queue), None) == number
        tokens, seconds = self.queue.pop(number)
        self.prefill_tokens -= tokens
        self.prefill_s -= seconds
        if not self.queue:
            self.prefill_s = self.front_s = 0.0
        elif self.prefill_s < 0:
            self.prefill_s = 0.0
        elif was_front:
            self.front_s, self.front_since = next(iter(self.queue.values()))[1], now

    def add_decoding(self, requests: int, decode_tokens: int, context_tokens: int, blocks: int) -> None:
        """A request to decode; negative numbers take one away."""
        self.requests += requests
        self.decoding += requests
        self.decode_tokens += decode_tokens
        self.context_tokens += context_tokens
        self.blocks += blocks

    def booked(self, given: Given) -> Booked:
        """What holds of a replica with this account, for `routing.books`."""
        since = inf if self.front_since is None else self.front_since
        return Booked(
            self.requests,
            self.decoding,
            self.context_tokens,
            self.blocks,
            self.prefill_tokens,
            self.prefill_s,
            self.front_s,
            since,
            given.turn,
            given.requests,
            given.prefill_s,
        )

    def check(self, expected: "Account", name: str) -> None:
        """Assert that this is the sum of the parts that make up `expected`."""
        assert self.queue == expected.queue, f"{name}: queue {self.queue}, open leases {expected.queue}"
        for field in ("blocks", "context_tokens", "decode_tokens", "decoding", "prefill_tokens", "requests"):
            mine, theirs = getattr(self, field), getattr(expected, field)
            assert mine == theirs, f"{name}: {field} {mine}, open leases {theirs}"
        assert abs(self.prefill_s - expected.prefill_s) < 1e-6, f"{name}: {self.prefill_s} s, not {expected.prefill_s}"

    def reserved(self) -> Reserved:
        """The totals as a value."""
        return Reserved(
            self.prefill_tokens,
            self.decode_tokens,
            self.requests,
            self.prefill_s,
            self.context_tokens,
            self.blocks,
        )


IDLE = Account()
"""What a replica without leases owes. Never written to."""
