"""One leg: a prefill leg, whose tokens are thrown away, or a decode leg, which waits for its blocks first. A leg that
computes the prompt may have some of its blocks brought from another node's store before.

Invariant: a leg ends in exactly one of an answer, a failure, or an abort. However it ends, its engine request is closed
and its hand-off let go in the node's store; only a prefill leg that answered leaves it to decode, which comes for it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from cluster.dataplane.frames import Delta, FailureKind, Generate, LegReport
from cluster.dataplane.legs import LegSink, LegWork
from cluster.dataplane.token_ids import unpack_token_ids
from cluster.engines.engine import Engine, EngineRequest
from cluster.errors import CannotContinue, EngineFailed, InvalidRequest
from cluster.workers.engine_requests import engine_request, going_on, known_tokens
from cluster.workers.hold import RELEASE_S, HandoffStore, Held, Hold, Pins, bring
from cluster.workers.kv_events import KvBlocks, Prompt
from cluster.workers.leg_report import (
    DecodeAnswer,
    Finish,
    after_fetch,
    after_handoff,
    complete,
    count_outputs,
    expecting,
)
from cluster.workers.load import LegCounters
from kvtransfer.errors import KvTransferError, StoreLost
from kvtransfer.tenant import tenant_of

log = logging.getLogger(__name__)

CONCLUDE_AFTER_S = 1.0
"""How long an engine may take, once a prefill leg is answered, to tell the store what it has to tell."""


@dataclass(frozen=True, slots=True)
class LegServices:
    """What legs run on. `store` is None for a worker without one: its decode legs compute everything. `blocks` says
    what of a prompt is cached.
    """

    engine: Engine
    store: HandoffStore | None
    tasks: asyncio.TaskGroup
    counters: LegCounters
    blocks: KvBlocks


class Leg:
    """One leg, implements `cluster.dataplane.legs.RunningLeg`."""

    def __init__(self, generate: Generate, sink: LegSink, services: LegServices) -> None:
        self._generate = generate
        self._sink = sink
        self._services = services
        self._token_ids = unpack_token_ids(generate.token_ids)
        known = known_tokens(self._token_ids, generate.emitted)
        self._prompt = Prompt(known, generate.cache_salt, generate.lora_name)
        self._tenant = tenant_of(generate.cache_salt)
        handoff, fetch = generate.handoff, generate.fetch
        self._hold = Hold(handoff, self._tenant) if generate.role == "decode" and handoff is not None else None
        self._pins = _pins(handoff.handoff_id, services) if handoff is not None else None
        self._fetched_pins = _pins(fetch.fetch_id, services) if fetch is not None else None
        self._answered = False
        self.work = LegWork(1, 0 if self._waits_for_blocks else self._uncached_tokens())
        self.held = False
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Leg {self._generate.role} {self._generate.request_id} held={self.held}>"

    @property
    def _waits_for_blocks(self) -> bool:
        return self._hold is not None and self._services.store is not None

    def _uncached_tokens(self) -> int:
        """At least one: the last token of a prompt is always computed."""
        cached = self._services.blocks.cached_tokens(self._prompt, self._generate.load_limit_tokens)
        return max(1, len(self._prompt.token_ids) - cached)

    # RunningLeg

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def source_lost(self) -> None:
        if self._hold is not None:
            self._hold.source_lost()

    # Running

    async def run(self) -> None:
        """To the end; raises nothing but cancellation. Whoever runs it calls `let_go` afterwards."""
        try:
            async with asyncio.timeout(self._generate.deadline_s) as deadline:
                await self._answer()
        except InvalidRequest as error:
            self.fail("invalid", str(error))
        except EngineFailed as error:
            self.fail("engine", str(error))
        except StoreLost as error:
            self.fail("unavailable", str(error))
        except CannotContinue as error:
            self.fail("cannot_continue", str(error))
        except Exception as error:
            if deadline.expired():
                self.fail("deadline", f"the leg took longer than {self._generate.deadline_s:g} s")
            else:
                log.exception("leg %s failed", self._generate.request_id)
                self.fail("engine", f"{type(error).__name__}: {error}")

    def fail(self, kind: FailureKind, message: str) -> None:
        """End without an answer."""
        self._services.counters.failed(kind)
        self._sink.fail(kind, message)

    def let_go(self) -> None:
        """The leg is over, or was aborted before it began."""
        self._release(self._fetched_pins)
        if not (self._answered and self._generate.role == "prefill"):
            self._release(self._pins)

    async def _answer(self) -> None:
        request, finish = engine_request(self._generate, self._token_ids), self._finish()
        fetched = await self._fetch()
        if self._generate.role == "prefill":
            await self._prefill(request, finish, fetched)
        elif self._hold is None or self._services.store is None:
            self.work = LegWork(finish.outputs, self.work.prefill_tokens)
            await self._decode(request, finish, lambda report: after_fetch(report, fetched))
        else:
            await self._decode_after_handoff(request, finish, self._hold, self._services.store)
        if not finish.reached:
            raise EngineFailed("the engine ended the request before it was finished")
        self._answered = True
        self._sink.end()

    def _finish(self) -> Finish:
        return Finish(len(self._generate.emitted) or count_outputs(bytes(self._generate.sampling)))

    async def _fetch(self) -> Held | None:
        """Bring the blocks that the gateway found on another node, if it did. However it ends, the engine goes on."""
        fetch, store = self._generate.fetch, self._services.store
        if fetch is None or store is None:
            return None
        labels = self._services.blocks.keys(self._prompt, fetch.start_tokens, fetch.end_tokens)
        self.work = LegWork(self.work.requests, max(1, len(self._prompt.token_ids) - fetch.end_tokens))
        self.held = True
        try:
            fetched = await bring(fetch, labels, self._tenant, store)
        finally:
            self.held = False
        self._services.counters.fetched(fetched)
        if fetched.outcome != "ready":
            self.work = LegWork(self.work.requests, self._uncached_tokens())
        return fetched

    async def _prefill(self, request: EngineRequest, finish: Finish, fetched: Held | None) -> None:
        clock = asyncio.get_running_loop().time
        began, first_token_s = clock(), 0.0
        store_address = self._require_store()
        cached_tokens: int | None = None
        async with aclosing(self._engine_deltas(request)) as deltas:
            async for delta in deltas:
                if not first_token_s:
                    first_token_s = clock() - began
                    self.work = LegWork(self.work.requests)
                    self._release(self._fetched_pins)
                cached_tokens = delta.num_cached_tokens if cached_tokens is None else cached_tokens
                if finish.note(delta):
                    self._require_store(store_address)
                    self._conclude_later()
                    report = after_fetch(complete(delta.report, first_token_s), fetched)
                    reason = delta.finish_reason
                    self._sink.delta(Delta(0, [], "", reason, num_cached_tokens=cached_tokens, report=report))

    def _conclude_later(self) -> None:
        """The engine announces and concludes by itself; should its connection to the store be down, nobody would."""
        if self._generate.handoff is not None and self._services.store is not None:
            work = _conclude(self._services.store, self._generate.handoff.handoff_id)
            self._services.tasks.create_task(work, name=f"conclusion of {self._generate.request_id}")

    def _require_store(self, address: str = "") -> str:
        """Where prefill's blocks go, still `address` if given. Raises `StoreLost`: decode would wait in vain."""
        store = self._services.store
        now = store.address if store is not None else ""
        if self._generate.handoff is not None and (not now or address not in ("", now)):
            raise StoreLost("the KV store of this node is away: nothing can be handed over")
        return now

    async def _decode_after_handoff(
        self, request: EngineRequest, finish: Finish, hold: Hold, store: HandoffStore
    ) -> None:
        self.held = True
        self.work = LegWork(finish.outputs)
        try:
            held = await hold.wait(store)
        finally:
            self.held = False
        self._services.counters.held(held)
        if held.outcome != "ready":
            self.work = LegWork(finish.outputs, self._uncached_tokens())
        await self._decode(expecting(request, held), finish, lambda report: after_handoff(report, held))

    async def _decode(self, request: EngineRequest, finish: Finish, waited: Callable[[LegReport], LegReport]) -> None:
        """`waited` adds to the engine's report what the leg waited for."""
        answer = DecodeAnswer(finish, waited, asyncio.get_running_loop().time)
        requests = going_on(request, self._generate.emitted)
        if len(requests) == 1:
            await self._pass_on(requests[0], answer)
            return
        try:
            async with asyncio.TaskGroup() as group:
                for each in requests:
                    group.create_task(self._pass_on(each, answer))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _pass_on(self, request: EngineRequest, answer: DecodeAnswer) -> None:
        async with aclosing(self._engine_deltas(request)) as deltas:
            async for delta in deltas:
                if not answer.begun:
                    self.work = LegWork(self.work.requests)
                    self._release(self._pins)
                    self._release(self._fetched_pins)
                self._sink.delta(answer.complete(delta))

    def _release(self, pins: Pins | None) -> None:
        if pins is not None:
            pins.release()

    def _engine_deltas(self, request: EngineRequest) -> AsyncGenerator[Delta, None]:
        """Engines answer with asynchronous generators; closing one aborts the request."""
        return cast(AsyncGenerator[Delta, None], self._services.engine.generate(request))


def _pins(handoff_id: str, services: LegServices) -> Pins | None:
    return Pins(handoff_id, services.store, services.tasks) if services.store is not None else None


async def _conclude(store: HandoffStore, handoff_id: str) -> None:
    await asyncio.sleep(CONCLUDE_AFTER_S)
    try:
        async with asyncio.timeout(RELEASE_S):
            await store.conclude(handoff_id)
    except (KvTransferError, OSError) as error:
        log.warning("hand-off %s: could not be concluded: %s", handoff_id, error)
