"""The seam between the coordinator and the choice of replicas. Pure: time and randomness are arguments."""

from dataclasses import dataclass
from typing import Protocol

from routing.fleet import Fleet


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What is to be placed.

    `max_tokens` is the most it may produce; `exclude` names replicas that already failed it.
    """

    request_id: str
    prompt_tokens: int
    max_tokens: int
    outputs: int = 1
    may_disaggregate: bool = True
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes. Without `prefill` the decode replica computes the prompt itself; `why` is for people."""

    decode: str
    prefill: str | None
    why: str


class Rng(Protocol):
    """A source of randomness, e.g. `random.Random`."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


class Router(Protocol):
    """Chooses; changes nothing."""

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """The best placement at time `now` (seconds, monotonic).

        Raises `routing.errors.NoCandidate` when no decode replica can take the request.
        """
        ...
