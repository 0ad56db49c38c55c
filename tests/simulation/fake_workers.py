"""`Workers` in virtual time: replicas that compute known tokens, hand over blocks, fail and die as they are told.

A `Behaviour` says what becomes of one leg. A decode leg with a hand-off starts when its prefill leg is done, when it
is told that the source is lost, or at the hand-off's deadline. The fake is strict about its seam: a leg on the wrong
role, a read of a closed stream, a decode leg left waiting for a prefill leg that failed, a pair of two fingerprints and
an answer that goes on with another model are assertion errors.
`pinned` are the hand-offs whose blocks a store keeps for a decode leg that will never come. Of the decode legs that
could start on a replica no more than `places` do; the others wait for one of those to end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from cluster.coordinator.workers import GenerationRequest, HandedBack, Leg
from cluster.dataplane.frames import Delta, Emitted, Handoff, LegReport, WorkerInfo
from cluster.errors import BatonError, ReplicaDraining, ReplicaLost
from routing.fleet import Fleet, Replica, Role
from tests.simulation.seats import Seats


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One leg's fate: it starts computing for `start_s`, then `step_tokens` tokens come every `gap_s`.

    `error` strikes `error_s` after the leg was opened. A leg that hangs never makes a token, nor asks for its blocks.
    One that is cut off asks a store that it does not reach, and computes the prompt.
    """

    start_s: float = 0.1
    gap_s: float = 0.02
    step_tokens: int = 1
    error: BatonError | None = None
    error_s: float = 0.0
    hangs: bool = False
    cut_off: bool = False


def reference(prompt: Sequence[int], index: int, count: int) -> list[int]:
    """The tokens of an output: they depend on the whole prompt."""
    return [(sum(prompt) * 31 + len(prompt) + index * 101 + i * 7) % 50_000 for i in range(count)]


def length(request: GenerationRequest, index: int) -> int:
    """Tokens of a whole output: the later ones of a request are shorter."""
    return max(1, request.max_tokens - 2 * index)


def text(tokens: Sequence[int]) -> str:
    """What they read as."""
    return "".join(f"{token} " for token in tokens)


@dataclass(frozen=True, slots=True)
class Choice:
    """The replica that was taken, in which of its lives, and which could have been."""

    taken: str
    life: int
    able: set[str]


@dataclass
class _Handoff:
    source: str = ""
    kv_fingerprint: str = ""
    done: bool = False
    collected: bool = False
    failed: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)


class FakeWorkers:
    """Implements `Workers`. `behave` is asked for each leg that is opened."""

    def __init__(self, behave: Callable[[str, Leg], Behaviour], places: int = 1_000_000) -> None:
        self._behave = behave
        self._places = places
        self._seats: dict[str, Seats] = {}
        self._replicas: dict[str, Replica] = {}
        self._dead: set[str] = set()
        self._draining: set[str] = set()
        self._handoffs: dict[str, _Handoff] = {}
        self._models: dict[str, str] = {}
        self.streams: set[FakeStream] = set()
        self.opened: list[tuple[str, Leg]] = []
        self.choices: list[Choice] = []
        """For each leg opened, what it could have been opened on."""
        self._lives: Counter[str] = Counter()

    def add(
        self,
        replica_id: str,
        role: Role,
        kv_fingerprint: str = "f",
        max_model_len: int = 4096,
        model_identity: str = "m",
    ) -> None:
        """Connect a replica, or bring a dead one back."""
        self._lives[replica_id] += 1
        self._replicas[replica_id] = Replica(
            replica_id, role, "n1", kv_fingerprint, 16, max_model_len, model_identity=model_identity
        )
        self._dead.discard(replica_id)
        self._draining.discard(replica_id)

    def drain(self, replica_id: str, finish_s: float, heard_s: float = 0.0) -> None:
        """It takes nothing new from now on, of which the gateway hears after `heard_s`; after `finish_s` it hands back
        what it has.
        """
        self._draining.add(replica_id)
        loop = asyncio.get_running_loop()
        life = self._lives[replica_id]
        loop.call_later(heard_s, self._unready, replica_id, life)
        loop.call_later(finish_s, self._hand_back, replica_id, life)

    def undrain(self, replica_id: str) -> None:
        """In service again, as the same."""
        self._draining.discard(replica_id)
        if replica_id in self._replicas:
            self._replicas[replica_id] = replace(self._replicas[replica_id], ready=True)

    def _unready(self, replica_id: str, life: int) -> None:
        if self._drains(replica_id, life) and replica_id in self._replicas:
            self._replicas[replica_id] = replace(self._replicas[replica_id], ready=False)

    def _hand_back(self, replica_id: str, life: int) -> None:
        if not self._drains(replica_id, life):
            return
        for stream in [s for s in self.streams if s.replica_id == replica_id]:
            stream.hand_back()
        if any(s.replica_id == replica_id for s in self.streams):
            asyncio.get_running_loop().call_later(1.0, self._hand_back, replica_id, life)

    def _drains(self, replica_id: str, life: int) -> bool:
        return replica_id in self._draining and self._lives[replica_id] == life

    def kill(self, replica_id: str) -> None:
        """Its connection breaks: every stream on it is lost. The fleet lists it until `forget`. Nobody can tell it any
        more that a hand-off is not wanted.
        """
        self._dead.add(replica_id)
        for handoff in self._handoffs.values():
            handoff.collected |= handoff.source == replica_id
        for stream in [s for s in self.streams if s.replica_id == replica_id]:
            stream.fail(ReplicaLost(f"{replica_id} is gone"))

    def forget(self, replica_id: str) -> None:
        """The fleet does not list it any more."""
        self._replicas.pop(replica_id, None)

    def fleet(self) -> Fleet:
        return Fleet(dict(self._replicas))

    def info(self, replica_id: str) -> WorkerInfo:
        replica = self._alive(replica_id)
        role = "prefill" if replica.role is Role.PREFILL else "decode"
        fingerprint = replica.kv_fingerprint
        return WorkerInfo(replica_id, role, "n1", "simulated", f"tcp://{replica_id}", fingerprint, 16, 4096, "e1")

    def store_on(self, node_id: str, kv_fingerprint: str) -> str:
        alive = (r for r in self._replicas.values() if r.replica_id not in self._dead)
        there = (r for r in alive if (r.node_id, r.kv_fingerprint) == (node_id, kv_fingerprint))
        return next((f"tcp://{r.replica_id}" for r in there), "")

    def open(self, replica_id: str, leg: Leg) -> "FakeStream":
        replica = self._alive(replica_id)
        assert replica.role.value == leg.role, f"a {leg.role} leg on {replica_id}"
        assert leg.deadline_s > 0
        self._check_version(replica, leg)
        self.opened.append((replica_id, leg))
        others = (r for r in self._replicas.values() if r.role is replica.role and r.ready)
        able = {r.replica_id for r in others if not leg.emitted or r.model_identity == replica.model_identity}
        self.choices.append(Choice(replica_id, self._lives[replica_id], able - self._dead))
        kind = _PrefillStream if leg.role == "prefill" else _DecodeStream
        stream = kind(self, replica_id, leg, self._behave(replica_id, leg))
        self.streams.add(stream)
        if replica_id in self._draining:
            stream.fail(ReplicaDraining(f"{replica_id} is draining"))
        return stream

    def _check_version(self, replica: Replica, leg: Leg) -> None:
        """Both legs of a hand-off have one fingerprint, and what goes on goes on with the model that began it."""
        if leg.handoff is not None:
            handoff = self.handoff(leg.handoff.handoff_id)
            handoff.kv_fingerprint = handoff.kv_fingerprint or replica.kv_fingerprint
            assert handoff.kv_fingerprint == replica.kv_fingerprint, "a pair of two fingerprints"
        if leg.role == "decode":
            began = self._models.get(leg.request.request_id)
            assert not leg.emitted or began == replica.model_identity, "it goes on with another model"
            self._models[leg.request.request_id] = replica.model_identity

    def let_go(self, replica_id: str, handoff: Handoff) -> None:
        self.handoff(handoff.handoff_id).collected = True

    @property
    def pinned(self) -> list[str]:
        return [name for name, handoff in self._handoffs.items() if handoff.done and not handoff.collected]

    def is_dead(self, replica_id: str) -> bool:
        return replica_id in self._dead

    def working_for(self, request_id: str) -> bool:
        """Whether a leg of this request is open."""
        return any(stream.request_id == request_id for stream in self.streams)

    def seats(self, replica_id: str) -> Seats:
        """Who decodes there, and who waits for it."""
        return self._seats.setdefault(replica_id, Seats(self._places))

    def handoff(self, handoff_id: str) -> _Handoff:
        """The hand-off's fate, shared by both legs."""
        return self._handoffs.setdefault(handoff_id, _Handoff())

    def _alive(self, replica_id: str) -> Replica:
        if replica_id in self._dead or replica_id not in self._replicas:
            raise ReplicaLost(f"{replica_id} is not connected")
        return self._replicas[replica_id]


class FakeStream:
    """What both kinds of leg share: merged deltas, one error, timers that end with the stream."""

    def __init__(self, workers: FakeWorkers, replica_id: str, leg: Leg, behaviour: Behaviour) -> None:
        self.replica_id = replica_id
        self.request_id = leg.request.request_id
        self.closed = False
        self._workers = workers
        self._leg = leg
        self._behaviour = behaviour
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, Delta] = {}
        self._error: BatonError | None = None
        self._handed_back = False
        self._waiter: asyncio.Future[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        if behaviour.error is not None:
            self._later(behaviour.error_s, lambda: self.fail(behaviour.error))

    async def next(self) -> Sequence[Delta]:
        assert not self.closed, "a closed stream is read"
        while not self._pending and self._error is None:
            if self._handed_back:
                self._handed_back = False
                raise HandedBack
            self._waiter = self._loop.create_future()
            await self._waiter
        if self._pending:
            taken, self._pending = list(self._pending.values()), {}
            return taken
        raise self._error

    def source_lost(self) -> None:
        raise AssertionError("a prefill leg has no source")

    def close(self) -> None:
        self._error = self._error or ReplicaLost("the stream was closed")
        self.closed = True
        self._stop()
        self._wake()
        self._workers.streams.discard(self)

    def hand_back(self) -> None:
        """Its worker wants to be rid of it."""
        self._handed_back = True
        self._wake()

    def fail(self, error: BatonError) -> None:
        """The stream ends with an error, after what is pending."""
        if not self.closed and self._error is None:
            self._error = error
            self._stop()
            self._wake()

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay_s, call))

    def _stop(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _push(self, delta: Delta) -> None:
        if delta.index in self._pending:
            self._pending[delta.index].absorb(delta)
        else:
            self._pending[delta.index] = delta
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _PrefillStream(FakeStream):
    def __init__(self, workers: FakeWorkers, replica_id: str, leg: Leg, behaviour: Behaviour) -> None:
        super().__init__(workers, replica_id, leg, behaviour)
        assert leg.handoff is not None
        assert msgspec.msgpack.decode(leg.sampling)["max_tokens"] == 1
        if not behaviour.hangs:
            self._later(behaviour.start_s, self._finish)

    def fail(self, error: BatonError) -> None:
        self._workers.handoff(self._leg.handoff.handoff_id).failed = True
        super().fail(error)

    def _finish(self) -> None:
        handoff = self._workers.handoff(self._leg.handoff.handoff_id)
        handoff.done, handoff.source = True, self.replica_id
        report = LegReport(queued_s=self._behaviour.start_s / 4)
        self._push(Delta(index=0, token_ids=[0], finish_reason="length", report=report))
        self._stop()
        for call in handoff.waiting:
            call()


class _DecodeStream(FakeStream):
    def __init__(self, workers: FakeWorkers, replica_id: str, leg: Leg, behaviour: Behaviour) -> None:
        super().__init__(workers, replica_id, leg, behaviour)
        self._opened_at = self._started_at = self._loop.time()
        self._outcome = ""
        self._started = False
        self._made = self._begin_with(leg.emitted)
        if leg.handoff is None:
            self._start("")
            return
        assert leg.handoff.source.startswith("tcp://"), "a decode leg does not know its source"
        handoff = workers.handoff(leg.handoff.handoff_id)
        if behaviour.cut_off:
            self._start("failed")
        handoff.waiting.append(lambda: self._start("ready"))
        self._later(leg.handoff.deadline_s, lambda: self._late(handoff))

    def _begin_with(self, emitted: Sequence[Emitted]) -> dict[int, int]:
        """Tokens made of each output that is asked for; what the client is said to have had must be true."""
        request = self._leg.request
        for output in emitted:
            made = len(output.token_ids)
            assert output.token_ids == reference(request.token_ids, output.index, made)
            assert output.text_chars == len(text(output.token_ids))
            assert made < length(request, output.index), "a whole output is asked for again"
        return {each.index: len(each.token_ids) for each in emitted} or dict.fromkeys(range(request.outputs), 0)

    def source_lost(self) -> None:
        self._start("failed")

    def close(self) -> None:
        if not self._workers.is_dead(self.replica_id):
            self._collect()
        self._workers.seats(self.replica_id).leave(self)
        super().close()

    def _collect(self) -> None:
        if self._leg.handoff is not None and not self._behaviour.cut_off:
            self._workers.handoff(self._leg.handoff.handoff_id).collected = True

    def _late(self, handoff: _Handoff) -> None:
        assert self._started or not handoff.failed, "nobody told decode that its source is lost"
        self._start("late")

    def _start(self, outcome: str) -> None:
        if self.closed or self._error is not None or self._started:
            return
        self._started, self._started_at, self._outcome = True, self._loop.time(), outcome
        if not self._behaviour.hangs:
            self._collect()
            self._workers.seats(self.replica_id).take(self, self._decode)

    def _decode(self) -> None:
        self._later(0.001 if self._outcome == "ready" else self._behaviour.start_s, self._step)

    def _step(self) -> None:
        for index in list(self._made):
            self._advance(index)
        if self._made:
            self._later(self._behaviour.gap_s, self._step)
        else:
            self._stop()
            self._workers.seats(self.replica_id).leave(self)

    def _advance(self, index: int) -> None:
        request, first = self._leg.request, self._made[index]
        whole = length(request, index)
        made = self._made[index] = min(whole, first + self._behaviour.step_tokens)
        if made == whole:
            del self._made[index]
        tokens = reference(request.token_ids, index, made)[first:]
        self._push(
            Delta(
                index=index,
                token_ids=tokens,
                text=text(tokens),
                finish_reason="length" if made == whole else None,
                num_cached_tokens=len(self._leg.emitted),
                report=None if self._made else self._report(),
            )
        )

    def _report(self) -> LegReport:
        return LegReport(
            held_s=self._started_at - self._opened_at,
            first_token_s=0.001 if self._outcome == "ready" else self._behaviour.start_s,
            handoff_outcome=self._outcome,
        )
