"""Measures points on a running engine: asks for what a point needs and times what comes.

Prompts are random and never the same, but for the contexts of decode points, which are computed once and cached: all of
them are the first tokens of the same long ones.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from statistics import median

import msgspec

from cluster.dataplane.frames import Delta
from cluster.engines.engine import EngineRequest
from cluster.profiling.fit import Point
from cluster.profiling.schedule import DECODE_STEPS, DecodeTask, MoveTask, PromptTask, Task
from cluster.workers.engine_choice import StartedEngine
from configs.measured import DecodePoint, LoadPoint, PrefillPoint, TransferPoint
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.tenant import NO_TENANT

TOKEN_IDS = range(2, 256)
"""What prompts are made of: every vocabulary has them."""

LOADS = 3
"""How often a prompt is loaded for one point."""


class NotMeasured(Exception):
    """The engine did something else than what was to be measured; the text says what and what would help."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Connections to the engine's own store, and to another one that can read it at `address`."""

    here: AsyncStoreClient
    there: AsyncStoreClient
    address: str
    deadline_s: float


@dataclass(slots=True)
class Bench:
    """One engine. `clock` is what its time is measured by; without `stores` nothing can be moved."""

    engine: StartedEngine
    clock: Callable[[], float]
    rng: random.Random
    longest_context: int
    stores: Stores | None = None
    _contexts: list[list[int]] = field(default_factory=list)
    _known: int = 0
    _names: "count[int]" = field(default_factory=count)

    async def measure(self, task: Task) -> Sequence[Point]:
        """What one task brings. Raises `NotMeasured` and what engine and stores raise."""
        match task:
            case PromptTask():
                return [PrefillPoint(prompts=task.prompts, tokens=task.tokens, seconds=await self._prefill(task))]
            case DecodeTask():
                return [await self._decode(task)]
            case MoveTask():
                return await self._move(task)

    async def _prefill(self, task: PromptTask) -> float:
        prompts = [self._prompt(task.tokens) for _ in range(task.prompts)]
        return max(arrivals[0] for arrivals in await self._together(prompts, 1))

    async def _decode(self, task: DecodeTask) -> DecodePoint:
        await self._know(task.requests)
        prompts = [tokens[: task.context_tokens] for tokens in self._contexts[: task.requests]]
        arrivals = await self._together(prompts, 2 * DECODE_STEPS)
        begin, end = max(each[0] for each in arrivals), min(each[-1] for each in arrivals)
        within = [when for when in arrivals[0] if begin <= when <= end]
        if len(within) < 3:
            raise NotMeasured(f"{task}: the requests were not decoded together; give the engine a larger batch")
        made = sum(sum(when <= end for when in each) + sum(when <= begin for when in each) for each in arrivals) / 2
        return DecodePoint(
            requests=task.requests,
            context_tokens=task.context_tokens + round(made / task.requests),
            seconds=median(later - earlier for earlier, later in pairwise(within)),
        )

    async def _know(self, contexts: int) -> None:
        """So many contexts have been computed, or loaded, and are cached as far as the device holds them."""
        while self._known < contexts:
            if self._known == len(self._contexts):
                self._contexts.append(self._prompt(self.longest_context))
            await self._ask(self._contexts[self._known], 1)
            self._known += 1

    async def _move(self, task: MoveTask) -> Sequence[Point]:
        if self.stores is None:
            return []
        prompt, name, stores = self._prompt(task.tokens + 1), f"profile-{next(self._names)}", self.stores
        await self._ask(prompt, 1, handoff_id=name)
        try:
            await stores.here.await_handoff(name, None, stores.deadline_s, NO_TENANT)
            began = self.clock()
            ended = await stores.there.await_handoff(name, stores.address, stores.deadline_s, NO_TENANT)
            transfer_s = self.clock() - began
        finally:
            await asyncio.gather(stores.here.release(name), stores.there.release(name))
        blocks = task.tokens // self.engine.block_size_tokens
        if ended.pulled_blocks < blocks:
            raise NotMeasured(
                f"{task}: {ended.pulled_blocks} of {blocks} blocks came ({ended.outcome}: {ended.reason}): "
                "raise store.bytes"
            )
        load_s = await self._load(prompt, blocks, task)
        return [LoadPoint(tokens=task.tokens, seconds=load_s), TransferPoint(tokens=task.tokens, seconds=transfer_s)]

    async def _load(self, prompt: list[int], blocks: int, task: MoveTask) -> float:
        """What loading adds to the time to first token of a prompt whose blocks are on the device.

        That is the difference of two times much longer than itself, so each is the least of a few; and it is not less
        than the copying, which the engine times itself.
        """
        cached: list[float] = []
        loaded: list[float] = []
        copying_s = self._copying_s()
        for _ in range(LOADS):
            cached += await self._ask(prompt, 1)
            await self.engine.forget_cached()
            self._known = 0
            deltas: list[Delta] = []
            loaded += await self._ask(prompt, 1, into=deltas)
            came = max((delta.report.loaded_blocks for delta in deltas if delta.report is not None), default=0)
            if came < blocks:
                raise NotMeasured(f"{task}: {came} of {blocks} blocks came: raise store.bytes or timeouts.load_s")
        return max(min(loaded) - min(cached), (self._copying_s() - copying_s) / LOADS)

    def _copying_s(self) -> float:
        return self.engine.statistics().counters["load_s"]

    def _prompt(self, tokens: int) -> list[int]:
        return self.rng.choices(TOKEN_IDS, k=tokens)

    async def _together(self, prompts: Sequence[list[int]], tokens: int) -> list[list[float]]:
        """When each token of each answer came, from when all were asked for."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._ask(prompt, tokens)) for prompt in prompts]
        return [task.result() for task in asked]

    async def _ask(
        self, prompt: list[int], tokens: int, handoff_id: str | None = None, into: list[Delta] | None = None
    ) -> list[float]:
        """When each token of an answer came; those that came together share the time since the last."""
        sampling = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True})
        request = EngineRequest(f"profile-{next(self._names)}", prompt, sampling, handoff_id=handoff_id)
        began, arrivals = self.clock(), list[float]()
        async for delta in self.engine.generate(request):
            now, last = self.clock() - began, arrivals[-1] if arrivals else 0.0
            new = len(delta.token_ids)
            arrivals += [last + (now - last) * (n + 1) / new for n in range(new)]
            if into is not None:
                into.append(delta)
        return arrivals
