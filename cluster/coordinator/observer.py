"""The seam for whoever watches requests: metrics, traces, logs. An observer changes nothing and raises nothing.

`tokens` is called for every delta of a stream and must cost microseconds.
"""

from dataclasses import dataclass
from typing import Protocol

from cluster.coordinator.placement import Placement
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import LegReport, Role
from routing.router import Decision, Predicted


@dataclass(frozen=True, slots=True)
class Timings:
    """How the time to the first token was spent, of the attempt that made it. Seconds; None: there was no such part.

    `total_s` and `ttft_s` count from when the request came; of them it stood in line at the gateway for `line_s`.
    With a prefill leg the parts follow each other: queue + prefill at the prefill replica, transfer (what decode waited
    for blocks after prefill had ended), decode_wait (from its engine's taking the request to the first token).
    Without: transfer of what another node's store had, then queue + prefill, all at the decode replica.
    """

    total_s: float
    ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    transfer_s: float | None = None
    decode_wait_s: float | None = None
    line_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended. `outcome` is "finished", "cancelled" or the name of what failed, e.g. "replica_lost".

    `cached_tokens` of the prompt decode did not compute, `prefill_cached_tokens` prefill did not. `itl_s` is the mean
    time from token to token; None with fewer than two tokens. `resumes` counts the attempts that went on with tokens
    of an attempt before; then `prefill` and `decode` are of the last of them, and what is said of the prompt and of the
    first token is of the one that made it. `moves` counts the attempts that ended because their replica drained.
    """

    request: GenerationRequest
    placement: Placement
    outcome: str
    prompt_tokens: int
    generated_tokens: int
    cached_tokens: int
    prefill_cached_tokens: int
    itl_s: float | None
    attempts: int
    timings: Timings
    prefill: LegReport | None
    decode: LegReport | None
    resumes: int = 0
    moves: int = 0


class EndListener(Protocol):
    """Told once of every request that started: how it went."""

    def ended(self, ended: Ended) -> None:
        """It is over. Changes nothing of the request, and must cost microseconds. What it raises is logged."""
        ...


class Observer(EndListener, Protocol):
    """Told of every step of every request. Times are in seconds."""

    def started(self, request: GenerationRequest) -> None:
        """A request was admitted."""
        ...

    def routed(self, decision: Decision) -> None:
        """An attempt begins."""
        ...

    def awaited(self, arrival: str) -> None:
        """A wait for blocks that another replica computes is over: "there", "lost" or "late"."""
        ...

    def legs(self, role: Role, change: int) -> None:
        """One more (1) or one less (-1) leg of a role is in flight."""
        ...

    def first_token(self, ttft_s: float) -> None:
        """The request's first token came `ttft_s` after the request, which may have stood in line."""
        ...

    def predicted(self, predicted: Predicted, ttft_s: float) -> None:
        """The first token came `ttft_s` after the decision that predicted it."""
        ...

    def tokens(self, count: int, gap_s: float | None) -> None:
        """`count` tokens of one output came together, `gap_s` after the ones before them; None: they are its first."""
        ...

    def refused(self, reason: str) -> None:
        """A request was not admitted: "overloaded", "no_replica_ready", "invalid_request", or "cancelled" in line."""
        ...
