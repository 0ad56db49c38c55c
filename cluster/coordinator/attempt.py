"""One attempt at a request: both legs, opened at the same time, the lease they hold, and the watch over prefill.

Whatever happens, `release` closes both streams, lets a hand-off go that nobody came for, and gives the lease back, at
once and once; `close` also awaits the watch.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cluster.coordinator.observer import Observer
from cluster.coordinator.prefill_leg import prefill_sampling
from cluster.coordinator.workers import GenerationRequest, HandedBack, Leg, Stream, Workers
from cluster.dataplane.frames import Delta, Emitted, Fetch, Handoff, LegReport
from cluster.errors import BatonError, ReplicaLost
from routing.block_keys import PromptKeys
from routing.ledger import Lease, Ledger
from routing.router import Decision, RouteRequest

LEAST_PATIENCE_S = 0.1
"""A fetch is not given up sooner, however little it is worth: two stores and two workers take turns at it."""


@dataclass(frozen=True, slots=True)
class PrefillEnd:
    """How a prefill leg ended: well, with its report if it sent one, or lost with an `error`.

    `cached_tokens` of the prompt it did not have to compute.
    """

    report: LegReport | None = None
    cached_tokens: int = 0
    error: BatonError | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What an attempt is to do. Seconds from now: `deadline_s` for the whole, `handoff_s` for waiting for blocks.

    `left` is the request less what the client has had: what is placed, and what prefill computes. Decode gets the
    `request` itself and what was `emitted`.
    """

    request: GenerationRequest
    left: GenerationRequest
    emitted: Sequence[Emitted]
    handoff_id: str
    deadline_s: float
    handoff_s: float


class Attempt:
    """Owns the streams of one attempt. `on_prefill_end` is called at most once, and never after `release`."""

    def __init__(
        self,
        workers: Workers,
        ledger: Ledger,
        clock: Callable[[], float],
        observer: Observer,
        decision: Decision,
        lease: Lease,
        on_prefill_end: Callable[[PrefillEnd], None],
    ) -> None:
        self.decision = decision
        self._workers = workers
        self._ledger = ledger
        self._clock = clock
        self._observer = observer
        self._lease: Lease | None = lease
        self._on_prefill_end = on_prefill_end
        self._decode: Stream | None = None
        self._prefill: Stream | None = None
        self._watch: asyncio.Task[None] | None = None
        self._uncollected: Handoff | None = None

    @property
    def decode(self) -> Stream:
        """The open decode leg."""
        assert self._decode is not None, "the decode leg is not open"
        return self._decode

    def open(self, order: Order) -> None:
        """Send both legs. Raises `ReplicaLost` when decode is gone; a lost prefill is only reported."""
        source = self._source(order)
        decode_leg = Leg(
            "decode", order.request, order.request.sampling, source, order.deadline_s, emitted=order.emitted
        )
        if source is None:
            decode_leg = self._computing(decode_leg, self.decision.decode, order)
        self._decode = self._workers.open(self.decision.decode, decode_leg)
        self._observer.legs("decode", 1)
        if source is not None and self.decision.prefill is not None:
            self._uncollected = source
            self._open_prefill(self.decision.prefill, order)

    def first_token(self) -> None:
        """Decode has computed what it did not get."""
        if self.decision.prefill is None:
            self.prompt_computed()

    def took(self, deltas: Sequence[Delta]) -> None:
        """At its end decode says whether it came for the hand-off."""
        if any(delta.report is not None and delta.report.handoff_outcome == "ready" for delta in deltas):
            self._uncollected = None

    def prompt_computed(self) -> None:
        """Give back what the ledger reserved for the prompt."""
        if self._lease is not None:
            self._ledger.prefill_done(self._lease, self._clock())

    def release(self) -> None:
        """Close both streams and release the lease. May be called twice."""
        self._close_prefill()
        if self._watch is not None:
            self._watch.cancel()
        if self._decode is not None:
            self._decode.close()
            self._decode = None
            self._observer.legs("decode", -1)
        self._let_go()
        if self._lease is not None:
            self._ledger.release(self._lease, self._clock())
            self._lease = None

    async def close(self) -> None:
        """Release, and return when nothing of the attempt runs any more. Raises what broke the watch, if anything."""
        self.release()
        watch, self._watch = self._watch, None
        if watch is None:
            return
        await asyncio.wait([watch])
        if not watch.cancelled() and (error := watch.exception()) is not None:
            raise error

    def _source(self, order: Order) -> Handoff | None:
        if self.decision.prefill is None:
            return None
        address = self._workers.info(self.decision.prefill).store_address
        return Handoff(order.handoff_id, address, min(order.handoff_s, order.deadline_s))

    def _computing(self, leg: Leg, replica_id: str, order: Order) -> Leg:
        """The leg of the replica that computes the prompt. Raises `ReplicaLost`.

        It waits for blocks of another node about as long as computing them would take: then nothing is gained any more.
        """
        leg = replace(leg, load_limit_tokens=self.decision.load_limit_tokens)
        fetch = self.decision.fetch
        if fetch is None:
            return leg
        source = self._workers.store_on(fetch.node_id, self._workers.info(replica_id).kv_fingerprint)
        if not source:
            return leg
        patience_s = min(max(fetch.worth_s, LEAST_PATIENCE_S), order.handoff_s, order.deadline_s)
        name = f"{order.handoff_id}-fetch"
        return replace(leg, fetch=Fetch(name, source, fetch.start_tokens, fetch.end_tokens, patience_s))

    def _open_prefill(self, replica_id: str, order: Order) -> None:
        leg = Leg(
            "prefill",
            replace(order.left, outputs=1, max_tokens=1),
            prefill_sampling(order.left.sampling),
            Handoff(order.handoff_id),
            order.deadline_s,
        )
        try:
            self._prefill = self._workers.open(replica_id, self._computing(leg, replica_id, order))
        except BatonError as error:
            self._prefill_ended(PrefillEnd(error=error))
            return
        self._observer.legs("prefill", 1)
        self._watch = asyncio.create_task(self._watch_prefill(self._prefill))

    async def _watch_prefill(self, stream: Stream) -> None:
        try:
            end = await _end_of(stream)
        except BatonError as error:
            end = PrefillEnd(error=error)
        self._prefill_ended(end)

    def _prefill_ended(self, end: PrefillEnd) -> None:
        self._close_prefill()
        self.prompt_computed()
        self._on_prefill_end(end)

    def _close_prefill(self) -> None:
        if self._prefill is not None:
            self._prefill.close()
            self._prefill = None
            self._observer.legs("prefill", -1)

    def _let_go(self) -> None:
        """Decode may have been lost before it asked for the blocks, or have asked in vain a store that has started
        again since, or one that it did not reach: what prefill then handed over would stay pinned for it.
        """
        handoff, self._uncollected = self._uncollected, None
        if handoff is not None and self.decision.prefill is not None:
            self._workers.let_go(self.decision.prefill, handoff)


async def _end_of(stream: Stream) -> PrefillEnd:
    """Read a prefill leg to its end: its one token is of no use. It is short, and ends where it is."""
    while True:
        try:
            deltas = await stream.next()
        except HandedBack:
            continue
        for delta in deltas:
            if delta.finish_reason is not None:
                return PrefillEnd(delta.report, delta.num_cached_tokens or 0)


def can_source(workers: Workers, decision: Decision) -> bool:
    """Whether the chosen prefill replica is still connected, or none was chosen."""
    if decision.prefill is None:
        return True
    try:
        workers.info(decision.prefill)
    except ReplicaLost:
        return False
    return True


def place(request: GenerationRequest, keys: PromptKeys) -> RouteRequest:
    """The request as the router sees it."""
    return RouteRequest(
        request_id=request.request_id,
        prompt_tokens=len(request.token_ids),
        max_tokens=request.max_tokens,
        outputs=request.outputs,
        may_disaggregate=request.may_disaggregate,
        keys=keys,
    )
