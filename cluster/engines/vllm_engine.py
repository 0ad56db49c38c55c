"""`Engine` on a real vLLM: `AsyncLLM` in this process, its core and worker in two others, our connector attached.

Imports vLLM only when an engine is created, after the environment it reads is set. What vLLM raises is mapped to our
errors here and nowhere else.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import psutil

from cluster.dataplane.frames import Delta
from cluster.engines.engine import BlocksChanged, EngineRequest, EngineStatistics
from cluster.engines.vllm_deltas import DeltaStream
from cluster.engines.vllm_events import EventFeed
from cluster.engines.vllm_ledger import Ledger, Leg
from cluster.engines.vllm_settings import VllmEngineSettings
from cluster.errors import EngineFailed
from cluster.runtime.shared_memory import mapped_by, remove_unused
from kvtransfer.fingerprint import KvFingerprint

SHUTDOWN_S = 1.0
"""Seconds vLLM's processes get to end by themselves before they are killed: they hold nothing worth waiting for, and
an idle worker needs ten to notice.
"""

KILL_S = 2.0
"""Seconds in which a process is gone that was killed."""

PROBE = tuple(range(8))
"""Prompt of the request that warms an engine up and proves that it steps. Not a single token: on CPUs with AMX, vLLM
dies of an illegal instruction when that is the first thing it computes. Shorter than any block.
"""


def kv_fingerprint(settings: VllmEngineSettings) -> KvFingerprint:
    """The fingerprint an engine with these settings will have: what its node's store is started with.

    Imports vLLM and sets its environment, but starts nothing. Raises `configs.errors.ConfigError`.
    """
    settings.apply_environment()
    from cluster.engines import vllm_start  # not before the environment is set

    return vllm_start.fingerprint(settings)


def _done() -> None:
    """Nothing is left to do."""


def _family(pids: Iterable[int]) -> list[psutil.Process]:
    """These processes and all they have started."""
    heads = [psutil.Process(pid) for pid in pids]
    return heads + [child for head in heads for child in head.children(recursive=True)]


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Also what was stopped. Those that have ended, and others that have got their numbers since, are left alone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, KILL_S)


class VllmEngine:
    """Built by `create`; `close` ends its processes, and so does the end of this one."""

    def __init__(self, settings: VllmEngineSettings, started: Any, ledger: Ledger, vllm: Any, feed: EventFeed) -> None:
        self._settings = settings
        self._llm: Any = started.llm
        self._facts = started.facts
        self._ledger = ledger
        self._vllm = vllm
        self._feed = feed
        self._names = itertools.count()
        self._processes = _family(started.processes)

    @classmethod
    async def create(cls, settings: VllmEngineSettings) -> "VllmEngine":
        """Start vLLM and return when it is ready. Blocks this event loop meanwhile: vLLM ties itself to it.

        Raises `configs.errors.ConfigError` and `EngineFailed`.
        """
        settings.apply_environment()
        from cluster.engines import vllm_start  # not before the environment is set

        ledger = Ledger()
        started = vllm_start.start(settings, ledger)
        feed = EventFeed(started.facts.events_endpoint)
        engine = cls(settings, started, ledger, vllm_start, feed)
        try:
            async with asyncio.timeout(settings.start_s):
                await feed.connect()
                await engine.check_health()
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def block_size_tokens(self) -> int:
        return self.kv_fingerprint().block_size_tokens

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt plus output."""
        return int(self._facts.max_model_len)

    @property
    def kv_blocks(self) -> int:
        """Blocks the device can hold."""
        return int(self._facts.kv_blocks)

    @property
    def max_batched_tokens(self) -> int:
        """Tokens computed in one step at most."""
        return int(self._facts.max_batched_tokens)

    @property
    def max_running(self) -> int:
        """Requests in one batch at most."""
        return int(self._facts.max_running)

    def kv_fingerprint(self) -> KvFingerprint:
        """Who may exchange blocks with this engine."""
        fingerprint: KvFingerprint = self._facts.fingerprint
        return fingerprint

    async def generate(self, request: EngineRequest) -> AsyncGenerator[Delta, None]:
        name = f"{request.request_id}#{next(self._names)}"
        if self._llm is None:
            raise EngineFailed("the engine is closed")
        try:
            begun = self._vllm.begin(self._llm, request, name, self._facts.means)
            expected_blocks = min(request.expected_blocks, len(begun.prompt) // self.block_size_tokens)
            leg = Leg(len(begun.prompt), expected_blocks, request.missing_reason, time.monotonic())
            self._ledger.open(name, leg)
            stream = DeltaStream(leg, self._ledger, self.block_size_tokens, begun.seam)
            async with aclosing(self._vllm.submit(self._llm, request, begun, name)) as outputs:
                async for output in outputs:
                    for delta in stream.take(output, time.monotonic()):
                        yield delta
                    if stream.ended and not output.finished:
                        return
        except Exception as error:
            raise self._vllm.translate(error) from error
        finally:
            self._ledger.close(name)

    def events(self) -> AsyncIterator[Sequence[BlocksChanged]]:
        return self._feed.changes()

    def statistics(self) -> EngineStatistics:
        """vLLM reports only when it steps: without a leg of ours there is nothing to step for, and all is zero."""
        state, legs = self._facts.state, len(self._ledger)
        waiting = min(legs, state.waiting)
        return EngineStatistics(
            running=legs - waiting,
            waiting=waiting,
            queued_prefill_tokens=self._ledger.queued_prefill_tokens,
            kv_usage=state.kv_usage if legs else 0.0,
            counters={**state.connector, **self._ledger.counters(), "preemptions": float(state.preemptions)},
            steps=state.steps,
            dead=self._is_dead,
        )

    async def check_health(self) -> None:
        if self._is_dead:
            raise EngineFailed("the engine died")
        request = EngineRequest("health", PROBE, self._vllm.health_sampling())
        async with aclosing(self.generate(request)) as deltas:
            async for _ in deltas:
                pass

    async def forget_cached(self) -> None:
        """See `StartedEngine`. vLLM refuses while a request holds blocks."""
        if self._llm is None or not await self._llm.reset_prefix_cache():
            raise EngineFailed("the engine is closed" if self._llm is None else "requests hold blocks of the cache")

    @property
    def _is_dead(self) -> bool:
        return self._llm is None or bool(self._llm.errored)

    async def close(self) -> None:
        self._feed.close()
        llm, self._llm = self._llm, None
        if llm is None:
            return
        if llm.output_handler is not None:
            llm.output_handler.cancel()
            await asyncio.wait([llm.output_handler], timeout=SHUTDOWN_S)
        files = mapped_by(process.pid for process in self._processes)
        await asyncio.to_thread(llm.shutdown, SHUTDOWN_S)
        await asyncio.to_thread(_kill, self._processes)  # vLLM ends its core; a worker that was stopped cannot notice
        remove_unused(files)  # a rank that is killed leaves what its group shared
        llm.shutdown = _done  # its finaliser calls it once more, perhaps when the interpreter is half gone
