"""One request on its way through the cluster: attempts, until one answers or the lifecycle says that it is over.

The lifecycle decides; this performs. Before the last deltas are handed out everything is closed and released, so that a
slow client holds nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.coordinator.attempt import Attempt, Order, PrefillEnd, can_source, place
from cluster.coordinator.blocks_coming import until_there
from cluster.coordinator.lifecycle import Event, Instruction, Lifecycle, State
from cluster.coordinator.passed_by import PassedBy
from cluster.coordinator.patience import Patience
from cluster.coordinator.progress import Progress
from cluster.coordinator.resources import Resources
from cluster.coordinator.timeline import Timeline
from cluster.coordinator.workers import GenerationRequest, HandedBack
from cluster.dataplane.frames import Delta
from cluster.errors import (
    BatonError,
    CannotContinue,
    DeadlineExceeded,
    InvalidRequest,
    NoReplicaReady,
    ReplicaDraining,
)
from routing.block_keys import PromptKeys
from routing.errors import NoCandidate
from routing.fleet import Fleet
from routing.router import Coming, Decision, RouteRequest


class _NobodyNow(Exception):
    """No replica is there for a request that had one; it is to look again in `pause_s` seconds."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s


class _BlocksComing(Exception):
    """The request is routed again when blocks are there that another replica computes, or will not come."""

    def __init__(self, request: RouteRequest, decision: Decision, coming: Coming) -> None:
        self.request = request
        self.decision = decision
        self.coming = coming


class Journey:
    """Owns a request's lifecycle and its current attempt. At most one attempt is open at a time.

    It came at `arrived_at`, from when its times and its deadline count. `on_routed` is told of each placement, once it
    is reserved.
    """

    def __init__(
        self,
        request: GenerationRequest,
        resources: Resources,
        arrived_at: float,
        on_routed: Callable[[Decision], None],
    ) -> None:
        self._request = request
        self._with = resources
        self._on_routed = on_routed
        self._lifecycle = Lifecycle(resources.settings.max_attempts, resources.settings.max_moves)
        self._timeline = Timeline(request, arrived_at, resources.clock, resources.observer, resources.listeners)
        self._deadline_at = arrived_at + resources.settings.request_s
        left_s = self._deadline_at - resources.clock()
        self._deadline = asyncio.get_running_loop().call_later(left_s, self._expire)
        self._expired = False
        self._attempt: Attempt | None = None
        self._passed_by = PassedBy()
        self._keys = _keys(request)
        self._progress = Progress(request)
        self._patience = Patience(resources.settings.replica_s)
        self._waits = 0

    @property
    def state(self) -> State:
        """Where the request is."""
        return self._lifecycle.state

    @property
    def answered(self) -> bool:
        """Whether the last of its deltas has been handed out."""
        return self._lifecycle.state is State.FINISHED

    @property
    def attempts(self) -> int:
        """Attempts begun so far."""
        return self._timeline.attempts

    @property
    def age_s(self) -> float:
        """Seconds since it came."""
        return self._timeline.age_s

    async def next(self) -> Sequence[Delta]:
        """The next deltas, from whichever attempt makes them. Raises the `BatonError` the request ends with."""
        while True:
            try:
                if self._expired:
                    raise self._too_late()
                attempt = self._attempt or self._begin()
                deltas = await attempt.decode.next()
            except _BlocksComing as wait:
                await self._await_blocks(wait)
            except _NobodyNow as nobody:
                await asyncio.sleep(nobody.pause_s)
            except HandedBack:
                await self._move()
            except BatonError as error:
                await self._setback(self._too_late() if self._expired else error)
            else:
                await self._account(deltas)
                return deltas

    async def close(self, event: Event) -> None:
        """End it if it has not ended by itself; `event` says why. Streams are closed and leases released at once."""
        if not self._lifecycle.ended:
            self._lifecycle.on(event)
            self._over("cancelled" if event is Event.CLIENT_GONE else "broken")
        await self._end_attempt()

    def _begin(self) -> Attempt:
        """Route, reserve and send both legs: no other request is looked at in between."""
        now = self._with.clock()
        left_s = self._deadline_at - now
        if left_s <= 0:
            raise self._too_late()
        left = self._progress.left()
        may_wait = self._with.arrivals is not None and self._waits < self._with.settings.max_waits
        request = replace(place(left, self._keys), may_wait=may_wait)
        decision = self._choose(request, now)
        if decision.coming is not None:
            raise _BlocksComing(request, decision, decision.coming)
        if not can_source(self._with.workers, decision):
            decision = decision.without_prefill("prefill has just gone")
        self._lifecycle.on(Event.ROUTED_LOCAL if decision.prefill is None else Event.ROUTED_DISAGGREGATED)
        self._passed_by.took(decision.decode, self._with.workers.fleet())
        self._timeline.routed(decision)
        self._attempt = attempt = Attempt(
            self._with.workers,
            self._with.ledger,
            self._with.clock,
            self._with.observer,
            decision,
            self._with.ledger.reserve(decision, request, now),
            self._prefill_ended,
        )
        self._on_routed(decision)
        handoff_id, handoff_s = self._with.handoff_ids.next(), self._with.settings.handoff_s
        attempt.open(Order(self._request, left, self._progress.emitted(), handoff_id, left_s, handoff_s))
        return attempt

    def _choose(self, request: RouteRequest, now: float) -> Decision:
        """The router's choice; after some waiting also among replicas that failed the request, if there is no other."""
        fleet, why = self._with.workers.fleet(), ""
        exclusions = [self._passed_by.now(fleet)]
        if self._patience.forgives(now):
            exclusions.append(self._passed_by.strangers(fleet))
        for exclude in exclusions:
            try:
                decision = self._with.router.route(replace(request, exclude=exclude), fleet, now, self._with.rng)
            except NoCandidate as error:
                why = str(error)
            else:
                self._patience.reset()
                return decision
        raise self._nobody(fleet, now, why)

    async def _await_blocks(self, wait: _BlocksComing) -> None:
        """Return when the blocks are there, or will not come. The work is reserved where it is to go meanwhile."""
        assert self._with.arrivals is not None, "it was not to wait"
        self._lifecycle.on(Event.BLOCKS_COMING)
        self._waits += 1
        now = self._with.clock()
        lease = self._with.ledger.reserve(wait.decision, wait.request, now)
        self._on_routed(wait.decision)
        try:
            most_s = min(wait.coming.patience_s, self._deadline_at - now)
            self._with.observer.awaited((await until_there(self._with.arrivals, wait.coming, most_s)).value)
        finally:
            self._with.ledger.release(lease, self._with.clock())

    async def _move(self) -> None:
        """The replica wants another to go on. If there is none, the leg stays where it is: it will be asked again."""
        assert self._attempt is not None
        if self._lifecycle.budget.moves <= 0:
            return
        fleet, request = self._with.workers.fleet(), place(self._progress.left(), self._keys)
        others = replace(request, exclude=self._passed_by.now(fleet) | {self._attempt.decision.decode})
        try:
            self._with.router.route(others, fleet, self._with.clock(), self._with.rng)
        except NoCandidate:
            return
        self._lifecycle.on(Event.DECODE_MOVED)
        self._leave_replica()
        await self._end_attempt()

    def _leave_replica(self) -> None:
        """What is left of the request is for others."""
        assert self._attempt is not None
        self._passed_by.leave(self._attempt.decision.decode)
        self._progress.leg_lost()
        self._keys = _keys(self._progress.left())

    def _nobody(self, fleet: Fleet, now: float, why: str) -> Exception:
        """No replica fits. One that was lost may come back, or another in its place: who had one waits."""
        pause_s = self._patience.pause_s(now) if self._timeline.attempts else None
        if pause_s is None:
            self._lifecycle.on(Event.NO_CANDIDATE)
            return NoReplicaReady(why)
        self._lifecycle.on(Event.NONE_NOW)
        self._passed_by.forgive_who_was_away(fleet)
        return _NobodyNow(pause_s)

    def _expire(self) -> None:
        """The deadline has come. A closed stream wakes its reader: one timer for all reads, not one for each."""
        self._expired = True
        if self._attempt is not None:
            self._attempt.release()

    def _too_late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the request took longer than {self._with.settings.request_s:g} s")

    def _prefill_ended(self, end: PrefillEnd) -> None:
        assert self._attempt is not None
        if end.error is None:
            self._lifecycle.on(Event.PREFILL_DONE)
            self._timeline.prefill_done(end.report, end.cached_tokens)
            return
        if self._attempt.decision.prefill is not None:
            self._passed_by.leave(self._attempt.decision.prefill)
        if self._lifecycle.on(Event.PREFILL_LOST) is Instruction.TELL_SOURCE_LOST:
            self._attempt.decode.source_lost()

    async def _account(self, deltas: Sequence[Delta]) -> None:
        """Note what came; after the last of it nothing stays open."""
        assert self._attempt is not None
        if self._lifecycle.state is not State.DECODING:
            self._lifecycle.on(Event.FIRST_TOKEN)
            self._attempt.first_token()
            self._passed_by.began()
        self._attempt.took(deltas)
        self._progress.take(deltas)
        self._timeline.deltas(deltas)
        if self._progress.finished:
            self._lifecycle.on(Event.FINISHED)
            self._over("finished")
            await self._end_attempt()

    async def _setback(self, error: BatonError) -> None:
        """The attempt failed with `error`: prepare another, or raise it."""
        step = Instruction.FAIL if self._lifecycle.ended else self._lifecycle.on(_event(error))
        if step is Instruction.REROUTE and self._attempt is not None:
            self._leave_replica()
        if step is Instruction.FAIL:
            self._over(outcome_of(error))
        await self._end_attempt()
        if step is Instruction.FAIL:
            raise error

    def _over(self, outcome: str) -> None:
        self._deadline.cancel()
        if self._attempt is not None:
            self._attempt.release()
        self._timeline.ended(outcome, self._with.settings.max_moves - self._lifecycle.budget.moves)

    async def _end_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            await attempt.close()


def _keys(request: GenerationRequest) -> PromptKeys:
    return PromptKeys(request.token_ids, request.cache_salt, request.lora_name)


def _event(error: BatonError) -> Event:
    """What a decode leg's error means to the lifecycle."""
    match error:
        case InvalidRequest() | CannotContinue():
            return Event.REFUSED
        case DeadlineExceeded():
            return Event.DEADLINE
        case ReplicaDraining():
            return Event.DECODE_MOVED
        case _:
            return Event.DECODE_LOST


def outcome_of(error: BatonError) -> str:
    """The error's name as metrics spell it, e.g. "replica_lost"."""
    name = type(error).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
