"""The hand-off table: which blocks a prefill announced, what is still missing, who waits, which pins keep it alive.

Pure: time is an argument, and every change returns a `HandoffPlan` that its caller, the store, carries out.

A hand-off's blocks stay pinned from their commit until it is *collected*: somebody waited for it and nobody waits any
more (the waiter has pins of its own, or a peer has the bytes, or it gave up), it failed, or its time is over. After
that its keys are remembered until its time is over, so that a second decode worker still learns what was announced.

Invariants (`check`): a PENDING hand-off misses at least one block, a READY one none; pins are held only for keys it
announced and only until it is collected; there are never more than `max_handoffs` hand-offs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from kvtransfer.errors import RequestRefused
from kvtransfer.owners import Tenure
from kvtransfer.slot_records import Owner
from kvtransfer.states import HANDOFF_TRANSITIONS, HandoffEvent
from kvtransfer.transport import BlockKey, HandoffState


@dataclass(frozen=True, slots=True)
class HandoffPlan:
    """What follows from a change: drop one pin of each of these slots, wake who waits for these hand-offs, take one
    pin more of each of those slots.
    """

    unpin: Sequence[int] = ()
    changed: Sequence[str] = ()
    pin: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class HandoffView:
    """A hand-off as a waiter sees it."""

    state: HandoffState
    keys: Sequence[BlockKey]
    reason: str


@dataclass(slots=True)
class _Handoff:
    keys: tuple[BlockKey, ...]
    producer: Owner
    expires_at: float
    missing: set[BlockKey]
    state: HandoffState = HandoffState.PENDING
    reason: str = ""
    concluded: bool = False
    collected: bool = False
    held: dict[BlockKey, int] = field(default_factory=dict)


class HandoffTable:
    """Owns every hand-off announced to this store."""

    def __init__(self, max_handoffs: int, ttl_s: float) -> None:
        self._max_handoffs = max_handoffs
        self._ttl_s = ttl_s
        self._handoffs: dict[str, _Handoff] = {}  # oldest first
        self._wanting: dict[BlockKey, set[str]] = {}  # by missing block, the PENDING hand-offs
        self._produced: dict[Owner, set[str]] = {}  # PENDING ones
        self._waiters: dict[str, int] = {}
        self._unwanted: dict[str, float] = {}  # given up before they were announced, with the time to forget them

    def announce(
        self, handoff_id: str, producer: Owner, keys: Sequence[BlockKey], held: Mapping[BlockKey, int], now: float
    ) -> HandoffPlan:
        """A producer names its blocks. `held` are those that are committed, each pinned once for this hand-off.

        Raises `RequestRefused`, and then the pins remain the caller's.
        """
        self._make_room(handoff_id, keys)
        previous = self._remove(handoff_id)
        handoff = _Handoff(tuple(keys), producer, now + self._ttl_s, set(keys) - set(held), held=dict(held))
        handoff.collected = self._unwanted.pop(handoff_id, None) is not None and handoff_id not in self._waiters
        self._handoffs[handoff_id] = handoff
        self._produced.setdefault(producer, set()).add(handoff_id)
        for key in handoff.missing:
            self._wanting.setdefault(key, set()).add(handoff_id)
        if not handoff.missing:
            self._settle(handoff_id, HandoffEvent.COMPLETE)
        dropped = self._drop_pins(handoff) if handoff.collected else []
        return HandoffPlan([*previous, *dropped], [handoff_id])

    def committed(self, slots: Mapping[BlockKey, int]) -> HandoffPlan:
        """These blocks can be read now, in these slots. Wakes whoever waits for one of them."""
        changed: dict[str, None] = {}
        pin: list[int] = []
        for key in [key for key in slots if key in self._wanting] if self._wanting else ():
            for handoff_id in sorted(self._wanting.pop(key)):
                handoff = self._handoffs[handoff_id]
                handoff.missing.discard(key)
                if not handoff.collected:
                    handoff.held[key] = slots[key]
                    pin.append(slots[key])
                if not handoff.missing:
                    self._settle(handoff_id, HandoffEvent.COMPLETE)
                changed[handoff_id] = None
        return HandoffPlan((), list(changed), pin)

    def never_announced(self, handoff_id: str, producer: Owner, now: float) -> HandoffPlan:
        """The producer is done with a hand-off it has not announced: who waits for it, or will, learns it at once."""
        if handoff_id in self._handoffs:
            return HandoffPlan()
        try:
            self._make_room(handoff_id, ())
        except RequestRefused:
            return HandoffPlan()  # nobody can be told early; who waits has a deadline
        self._unwanted[handoff_id] = now + self._ttl_s  # should it be announced after all, nobody comes for it
        self._handoffs[handoff_id] = _Handoff((), producer, now + self._ttl_s, set())
        self._produced.setdefault(producer, set()).add(handoff_id)
        return self._fail(handoff_id, "the producer ended without announcing it")

    def conclude(self, handoff_id: str, is_being_written: Callable[[BlockKey], bool]) -> HandoffPlan:
        """The producer commits nothing more: what is missing and nobody is writing will not come."""
        handoff = self._handoffs.get(handoff_id)
        if handoff is None or handoff.state is not HandoffState.PENDING:
            return HandoffPlan()
        handoff.concluded = True
        if all(is_being_written(key) for key in handoff.missing):
            return HandoffPlan()
        return self._fail(handoff_id, "the producer ended with blocks missing")

    def conclude_all(self, producer: Owner, is_being_written: Callable[[BlockKey], bool]) -> HandoffPlan:
        """The producer is gone."""
        ids = sorted(self._produced.get(producer, ()))
        return _joined(self.conclude(handoff_id, is_being_written) for handoff_id in ids)

    def lost(self, key: BlockKey) -> HandoffPlan:
        """Whoever was writing the block gave it up: concluded hand-offs that miss it fail."""
        ids = sorted(i for i in self._wanting.get(key, ()) if self._handoffs[i].concluded)
        return _joined(self._fail(handoff_id, "the writer of a block is gone") for handoff_id in ids)

    def join(self, handoff_id: str) -> None:
        """Somebody waits for the hand-off, announced or not. Must be answered by `leave`."""
        self._waiters[handoff_id] = self._waiters.get(handoff_id, 0) + 1

    def leave(self, handoff_id: str) -> None:
        """One waiter less."""
        self._waiters[handoff_id] -= 1
        if not self._waiters[handoff_id]:
            del self._waiters[handoff_id]

    def collect(self, handoff_id: str, now: float) -> HandoffPlan:
        """Nobody will come for the hand-off any more, unless somebody still waits for it."""
        if handoff_id in self._waiters:
            return HandoffPlan()
        handoff = self._handoffs.get(handoff_id)
        if handoff is None:
            self._unwanted[handoff_id] = now + self._ttl_s
            if len(self._unwanted) > self._max_handoffs:
                del self._unwanted[next(iter(self._unwanted))]
            return HandoffPlan()
        handoff.collected = True
        return HandoffPlan(self._drop_pins(handoff))

    def expire(self, now: float) -> HandoffPlan:
        """Drop what is past its time. What somebody waits for fails now and is dropped by a later call."""
        for handoff_id in [i for i, at in self._unwanted.items() if at <= now]:
            del self._unwanted[handoff_id]
        past = list(takewhile(lambda item: item[1].expires_at <= now, self._handoffs.items()))
        return _joined(self._expire_one(handoff_id) for handoff_id, _ in past)

    def find(self, handoff_id: str) -> HandoffView | None:
        """The hand-off, or None when it was not announced or is past its time."""
        handoff = self._handoffs.get(handoff_id)
        return None if handoff is None else HandoffView(handoff.state, handoff.keys, handoff.reason)

    def will_come(self, handoff_id: str, key: BlockKey) -> bool:
        """Whether the block may still be committed by the hand-off's producer."""
        handoff = self._handoffs.get(handoff_id)
        return handoff is not None and handoff.state is HandoffState.PENDING and key in handoff.missing

    @property
    def open_count(self) -> int:
        """How many hand-offs are not collected yet."""
        return sum(not handoff.collected for handoff in self._handoffs.values())

    @property
    def pins(self) -> int:
        """How many pins the table holds."""
        return sum(len(handoff.held) for handoff in self._handoffs.values())

    @property
    def oldest_pin(self) -> Tenure | None:
        """The hand-off that has held pins for the longest, or nearly so: since it was announced."""
        held = ((i, handoff.expires_at - self._ttl_s) for i, handoff in self._handoffs.items() if handoff.held)
        return next((Tenure(since_s, f"hand-off {handoff_id}") for handoff_id, since_s in held), None)

    def check(self) -> None:
        """Assert the invariants: for tests."""
        assert len(self._handoffs) <= self._max_handoffs
        for handoff_id, handoff in self._handoffs.items():
            pending = handoff.state is HandoffState.PENDING
            assert handoff.state is not HandoffState.READY or not handoff.missing
            assert not pending or handoff.missing
            assert not handoff.held or not handoff.collected
            assert handoff.held.keys() <= set(handoff.keys) - handoff.missing
            assert (handoff_id in self._produced.get(handoff.producer, ())) == pending
            for key in handoff.missing:
                assert (handoff_id in self._wanting.get(key, ())) == pending
        assert all(count > 0 for count in self._waiters.values())

    def __repr__(self) -> str:
        return f"<HandoffTable open={self.open_count} pins={self.pins} awaited={len(self._waiters)}>"

    def _make_room(self, handoff_id: str, keys: Sequence[BlockKey]) -> None:
        if len(set(keys)) < len(keys):
            raise RequestRefused(f"hand-off {handoff_id!r} names a block twice")
        existing = self._handoffs.get(handoff_id)
        if existing is not None and existing.state is HandoffState.PENDING:
            raise RequestRefused(f"hand-off {handoff_id!r} is already announced")
        if existing is not None or len(self._handoffs) < self._max_handoffs:
            return
        done = next((i for i, h in self._handoffs.items() if self._is_done(i, h)), None)
        if done is None:
            raise RequestRefused(f"{self._max_handoffs} hand-offs are open, the most allowed")
        self._remove(done)

    def _is_done(self, handoff_id: str, handoff: _Handoff) -> bool:
        return handoff.collected and handoff.state is not HandoffState.PENDING and handoff_id not in self._waiters

    def _settle(self, handoff_id: str, event: HandoffEvent) -> None:
        """The only place that assigns a hand-off's state."""
        handoff = self._handoffs[handoff_id]
        handoff.state = HANDOFF_TRANSITIONS[handoff.state][event]
        for key in handoff.missing:
            self._stop_wanting(key, handoff_id)
        produced = self._produced[handoff.producer]
        produced.discard(handoff_id)
        if not produced:
            del self._produced[handoff.producer]

    def _stop_wanting(self, key: BlockKey, handoff_id: str) -> None:
        wanting = self._wanting[key]
        wanting.discard(handoff_id)
        if not wanting:
            del self._wanting[key]

    def _fail(self, handoff_id: str, reason: str) -> HandoffPlan:
        handoff = self._handoffs[handoff_id]
        handoff.reason = reason
        self._settle(handoff_id, HandoffEvent.FAIL)
        if handoff_id in self._waiters:
            return HandoffPlan((), [handoff_id])
        handoff.collected = True
        return HandoffPlan(self._drop_pins(handoff), [handoff_id])

    def _expire_one(self, handoff_id: str) -> HandoffPlan:
        failed = HandoffPlan()
        if self._handoffs[handoff_id].state is HandoffState.PENDING:
            failed = self._fail(handoff_id, "the hand-off is past its time")
        if handoff_id in self._waiters:
            return failed
        return HandoffPlan([*failed.unpin, *self._remove(handoff_id)], failed.changed)

    def _remove(self, handoff_id: str) -> list[int]:
        handoff = self._handoffs.pop(handoff_id, None)
        return [] if handoff is None else self._drop_pins(handoff)

    def _drop_pins(self, handoff: _Handoff) -> list[int]:
        slots = [handoff.held[key] for key in handoff.keys if key in handoff.held]
        handoff.held.clear()
        return slots


def _joined(plans: Iterable[HandoffPlan]) -> HandoffPlan:
    unpin: list[int] = []
    changed: list[str] = []
    for plan in plans:
        unpin += plan.unpin
        changed += plan.changed
    return HandoffPlan(unpin, changed)
