"""A gateway in virtual time: what the coordinator does with router, ledger and index, and nothing else.

It learns of the workers as a real one does: through load reports that are up to a period old, and cache events that
come after a delay.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.planning.job import Job
from cluster.planning.trace import TraceRequest
from routing.block_keys import PromptKeys
from routing.fleet import Fleet
from routing.index import KvIndex
from routing.ledger import Lease, Ledger
from routing.router import Decision, Rng, Router, RouteRequest


@dataclass(frozen=True, slots=True)
class Mind:
    """What a gateway decides with. `index` is None where the router asks none."""

    router: Router
    ledger: Ledger
    index: KvIndex | None


@dataclass(frozen=True, slots=True)
class Wish:
    """A request as a gateway gets it: `keys` of its prompt, and of `emitted` tokens it has already."""

    number: int
    request: TraceRequest
    max_tokens: int
    block_size_tokens: int
    exclude: frozenset[str] = frozenset()
    emitted: int = 0


@dataclass(slots=True)
class Attempt:
    """A request that was placed: its legs, and the lease on them."""

    wish: Wish
    decision: Decision
    lease: Lease
    decode: Job
    prefill: Job | None


class Gateway:
    """Owns its open attempts and their leases: one lease each."""

    def __init__(self, number: int, mind: Mind, rng: Rng, promise_s: float) -> None:
        self.mind = mind
        self._number = number
        self._rng = rng
        self._promise_s = promise_s

    def place(self, wish: Wish, fleet: Fleet, now: float) -> Attempt:
        """Route and reserve. Raises `NoCandidate`."""
        keys = PromptKeys.given(wish.block_size_tokens, wish.request.keys)
        prompt_tokens = wish.request.prompt_tokens + wish.emitted
        asked = RouteRequest(
            request_id=str(wish.number),
            prompt_tokens=prompt_tokens,
            max_tokens=wish.max_tokens,
            exclude=wish.exclude,
            keys=keys,
        )
        decision = self.mind.router.route(asked, fleet, now, self._rng)
        lease = self.mind.ledger.reserve(decision, asked)
        self._promise(decision, wish.request.keys, now)
        prefill = None if decision.prefill is None else self._job(wish, 1)
        decode = self._job(wish, wish.request.output_tokens - wish.emitted)
        decode.prefilled_elsewhere = prefill is not None
        return Attempt(wish, decision, lease, decode, prefill)

    def prompt_computed(self, attempt: Attempt) -> None:
        """Where it was placed, the prompt is computed."""
        self.mind.ledger.prefill_done(attempt.lease)

    def ended(self, attempt: Attempt) -> None:
        """Whatever ended it."""
        self.mind.ledger.release(attempt.lease)

    def lost(self, replica_id: str) -> None:
        """A worker is gone for good."""
        if self.mind.index is not None:
            self.mind.index.drop(replica_id)

    def _job(self, wish: Wish, output_tokens: int) -> Job:
        request = wish.request
        keys = array("Q", request.keys)
        return Job(wish.number, self._number, request.prompt_tokens + wish.emitted, output_tokens, keys)

    def _promise(self, decision: Decision, keys: Sequence[int], now: float) -> None:
        if self.mind.index is None:
            return
        for replica_id in (decision.decode, decision.prefill):
            if replica_id is not None:
                self.mind.index.promise(replica_id, keys, now + self._promise_s)
