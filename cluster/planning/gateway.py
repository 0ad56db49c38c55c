"""A gateway in virtual time: what the coordinator does with router, ledger and index, and nothing else.

It learns of the workers as a real one does: through load reports that are up to a period old, and cache events that
come after a delay.
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cluster.coordinator.resources import CoordinatorSettings
from cluster.planning.job import Job
from cluster.planning.trace import TraceRequest
from routing.arrivals import Arrivals
from routing.block_keys import PromptKeys
from routing.fleet import Fleet
from routing.index import KvIndex, Tier
from routing.ledger import Lease, Ledger
from routing.output_lengths import OutputLengths
from routing.router import Coming, Decision, Rng, Router, RouteRequest

MOST_WAITS = CoordinatorSettings().max_waits


@dataclass(frozen=True, slots=True)
class Mind:
    """What a gateway decides with. What its router does not ask is None."""

    router: Router
    ledger: Ledger
    index: KvIndex | None = None
    lengths: OutputLengths | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """A request as a gateway gets it, with `emitted` tokens already. It waited for others' blocks `waits` times."""

    number: int
    request: TraceRequest
    max_tokens: int
    block_size_tokens: int
    exclude: frozenset[str] = frozenset()
    emitted: int = 0
    waits: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """A request that is to be placed when blocks are there which another worker computes, and the lease until then."""

    wish: Wish
    decision: Decision
    coming: Coming
    lease: Lease


@dataclass(slots=True)
class Attempt:
    """A request that was placed: its legs, and the lease on them."""

    wish: Wish
    decision: Decision
    lease: Lease
    decode: Job
    prefill: Job | None

    @property
    def computing(self) -> Job:
        """The leg that computes the prompt."""
        return self.prefill or self.decode


class Gateway:
    """Owns its open attempts and their leases: one lease each."""

    def __init__(self, number: int, mind: Mind, rng: Rng) -> None:
        self.mind = mind
        self.arrivals: Arrivals | None = None
        self._number = number
        self._rng = rng

    def start(self, clock: Callable[[], float]) -> None:
        """It is told the time from now on."""
        if self.mind.index is not None:
            self.arrivals = Arrivals(self.mind.index, clock)

    def place(self, wish: Wish, fleet: Fleet, now: float) -> Attempt | Wait:
        """Route and reserve. Raises `NoCandidate`."""
        keys = PromptKeys.given(wish.block_size_tokens, wish.request.keys)
        prompt_tokens = wish.request.prompt_tokens + wish.emitted
        asked = RouteRequest(
            request_id=str(wish.number),
            prompt_tokens=prompt_tokens,
            max_tokens=wish.max_tokens,
            may_wait=self.arrivals is not None and wish.waits < MOST_WAITS,
            exclude=wish.exclude,
            keys=keys,
        )
        decision = self.mind.router.route(asked, fleet, now, self._rng)
        lease = self.mind.ledger.reserve(decision, asked, now)
        if decision.coming is not None:
            return Wait(wish, decision, decision.coming, lease)
        prefill = None if decision.prefill is None else self._job(wish, 1)
        decode = self._job(wish, wish.request.output_tokens - wish.emitted)
        decode.prefilled_elsewhere = prefill is not None
        (prefill or decode).load_limit_tokens = decision.load_limit_tokens
        return Attempt(wish, decision, lease, decode, prefill)

    def know(self, replica_id: str, store: str, tiers: Iterable[Tier]) -> None:
        """A worker is there, with nothing in its caches."""
        if self.mind.index is not None:
            self.mind.index.place(replica_id, store)
            for tier in tiers:
                self.mind.index.snapshot(replica_id, tier, ())

    def prompt_computed(self, attempt: Attempt, now: float) -> None:
        """Where it was placed, the prompt is computed, or never will be."""
        self.mind.ledger.prefill_done(attempt.lease, now)

    def finished(self, attempt: Attempt, now: float) -> None:
        """It made its last token."""
        self.mind.ledger.release(attempt.lease, now)
        if self.mind.lengths is not None:
            self.mind.lengths.observe(attempt.wish.max_tokens, attempt.wish.request.output_tokens)

    def waited(self, wait: Wait, now: float) -> Wish:
        """What it waited for is there, or will not come."""
        self.mind.ledger.release(wait.lease, now)
        return replace(wait.wish, waits=wait.wish.waits + 1)

    def given_up(self, attempt: Attempt, now: float) -> None:
        """It ended without."""
        self.mind.ledger.release(attempt.lease, now)

    def lost(self, replica_id: str) -> None:
        """A worker is gone for good."""
        self.mind.ledger.drop(replica_id)
        if self.mind.index is not None:
            self.mind.index.drop(replica_id)

    def _job(self, wish: Wish, output_tokens: int) -> Job:
        request = wish.request
        keys = array("Q", request.keys)
        return Job(wish.number, self._number, request.prompt_tokens + wish.emitted, output_tokens, keys)
