"""An engine without weights: real blocks, real bytes through the real store; only time and tokens are modelled.

Implements `cluster.engines.engine.Engine`. One owned task drives the core step by step, commits finished blocks and
loads missing ones; when nothing is to be done it sleeps. Imports neither vllm, torch nor transformers.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from cluster.dataplane.frames import Delta
from cluster.engines.engine import BlocksChanged, EngineRequest, EngineStatistics
from cluster.engines.simulated.batch import Plan, loadable_blocks
from cluster.engines.simulated.core import EngineCore
from cluster.engines.simulated.cost import StepCost
from cluster.engines.simulated.faults import Faults
from cluster.engines.simulated.intake import Intake
from cluster.engines.simulated.loader import BlockLoader
from cluster.engines.simulated.sequence import Job, Phase
from cluster.engines.simulated.sequence import Sequence as EngineSequence
from cluster.engines.simulated.settings import SimulatedSettings
from cluster.engines.simulated.store_link import StoreLink
from cluster.engines.simulated.vocabulary import Vocabulary, context_length
from cluster.errors import EngineFailed
from kvtransfer.errors import KvTransferError
from kvtransfer.fingerprint import KvFingerprint

log = logging.getLogger(__name__)

ENGINE_NAME = "simulated 1"


class SimulatedEngine:
    """Made by `create`. Invariant: every open job is either in the core's batch or has been told how it ended."""

    def __init__(self, settings: SimulatedSettings, intake: Intake, link: StoreLink | None) -> None:
        self._settings = settings
        self._intake = intake
        self._link = link
        self._wake = asyncio.Event()
        self._resumed = asyncio.Event()
        self._core = EngineCore(settings, intake, link, self._wake.set)
        self._loader = BlockLoader(link, self._core.device, self._core.injected) if link else None
        self._cost = StepCost(
            settings.decode_step_s, settings.decode_request_s, 1 / settings.prefill_tokens_per_s, settings.speed
        )
        self._jobs: set[Job] = set()
        self._probes: list[asyncio.Future[None]] = []
        self._failure: EngineFailed | None = None
        self._running: asyncio.Task[None] | None = None
        self.inject(settings.faults)

    @classmethod
    async def create(cls, settings: SimulatedSettings) -> "SimulatedEngine":
        """Read the tokenizer, connect to the store and start stepping.

        Raises ValueError for settings that cannot work and `EngineFailed` when the store does not let us in.
        """
        intake = _intake(settings)
        link = None
        if settings.store is not None:
            link = StoreLink(settings.store, kv_fingerprint(settings).digest(), settings.block_bytes)
            try:
                await link.connect()
            except (KvTransferError, OSError, TimeoutError) as error:
                raise EngineFailed(f"KV store {settings.store.socket_name}: {error}") from error
        engine = cls(settings, intake, link)
        engine._running = asyncio.create_task(engine._run(), name="simulated engine")
        return engine

    @property
    def block_size_tokens(self) -> int:
        """Tokens in a KV block."""
        return self._settings.block_size

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt plus output."""
        return self._intake.max_model_len

    @property
    def kv_blocks(self) -> int:
        """Blocks the device can hold."""
        return self._settings.device_blocks

    @property
    def max_batched_tokens(self) -> int:
        """Prompt tokens computed in one step."""
        return self._settings.max_batched_tokens

    @property
    def max_running(self) -> int:
        """Requests in one batch."""
        return self._settings.max_running

    def kv_fingerprint(self) -> KvFingerprint:
        """Who may exchange blocks with this engine."""
        return kv_fingerprint(self._settings)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[Delta, None]:
        """See `Engine.generate`."""
        self._raise_if_failed()
        job = self._intake.job(request, asyncio.get_running_loop().time())
        if self._core.injected.fails_prefill():
            raise EngineFailed("an injected fault failed this request")
        self._jobs.add(job)
        try:
            self._core.submit(job)
            self._wake.set()
            unfinished = job.sampling.n
            while unfinished:
                for delta in await job.queue.get():
                    unfinished -= delta.finish_reason is not None
                    yield delta
        finally:
            self._jobs.discard(job)
            self._core.abort(job)
            self._wake.set()

    def events(self) -> AsyncGenerator[Sequence[BlocksChanged], None]:
        """See `Engine.events`."""
        return self._core.log.consume()

    def statistics(self) -> EngineStatistics:
        """See `Engine.statistics`."""
        core = self._core
        counters: dict[str, float] = {**core.counters, "load_s": core.load_s}
        if core.saver:
            counters["saved_blocks"] = core.saver.saved_blocks
            counters["no_room_blocks"] = core.saver.no_room_blocks
            counters["unsaved_blocks"] = core.saver.unsaved_blocks
        if self._link:
            counters["store_lost"] = self._link.times_lost
        return EngineStatistics(
            running=len(core.batch.running),
            waiting=len(core.batch.waiting),
            queued_prefill_tokens=core.queued_prefill_tokens(),
            kv_usage=core.kv_usage(),
            counters=counters,
            steps=core.counters["steps"] + core.counters["loads"],
            dead=self._failure is not None,
        )

    async def check_health(self) -> None:
        """See `Engine.check_health`."""
        self._raise_if_failed()
        probe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._probes.append(probe)
        self._wake.set()
        await probe
        self._raise_if_failed()

    async def forget_cached(self) -> None:
        """See `StartedEngine`."""
        self._core.forget_cached()

    def inject(self, faults: Faults) -> None:
        """Put other faults in force; `Faults()` ends those that have not struck."""
        self._core.injected.replace(faults)
        if faults.hang:
            self._resumed.clear()
        else:
            self._resumed.set()

    def check(self) -> None:
        """Raise AssertionError unless the engine's state is consistent."""
        self._core.check()

    async def close(self) -> None:
        """See `Engine.close`. May be called twice; open requests fail."""
        if self._running is None:
            return
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        failure = EngineFailed("the engine is closed")
        try:
            async with asyncio.TaskGroup() as group:
                if self._core.saver:
                    group.create_task(self._core.saver.run())
                if self._link:
                    group.create_task(self._link.keep())
                group.create_task(self._step_forever(group))
        except* EngineFailed as errors:
            failure = EngineFailed(f"the engine died: {errors.exceptions[0]}")
        except* Exception as errors:
            failure = EngineFailed(f"the engine died: {errors.exceptions[0]!r}")
            log.error("the simulated engine died", exc_info=errors)
        finally:
            self._fail(failure)

    async def _step_forever(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            began_s = now()
            plan = self._core.plan(began_s)
            for sequence in plan.loads:
                group.create_task(self._load(sequence))
            if not plan.chunks and not self._probes:
                await self._wake.wait()
                continue
            await asyncio.sleep(max(0.0, self._duration_s(plan) - (now() - began_s)))
            await self._resumed.wait()
            self._core.execute(plan, now())
            self._answer_probes()

    def _duration_s(self, plan: Plan) -> float:
        return self._cost.duration_s(plan.prompt_tokens, plan.decoding) * self._core.injected.current.slow_factor

    async def _load(self, sequence: EngineSequence) -> None:
        assert self._loader is not None
        first, end = sequence.filled, loadable_blocks(sequence)
        keys, blocks = sequence.hashes[first:end], sequence.blocks[first:end].tolist()
        now = asyncio.get_running_loop().time
        began_s = now()
        result = await self._loader.load(keys, blocks, lambda: sequence.phase is Phase.LOADING)
        self._core.loaded(sequence, first, result, began_s, now())
        self._wake.set()

    def _answer_probes(self) -> None:
        probes, self._probes = self._probes, []
        for probe in probes:
            if not probe.done():
                probe.set_result(None)

    def _fail(self, failure: EngineFailed) -> None:
        self._failure = failure
        for job in tuple(self._jobs):
            self._core.abort(job)
            job.queue.fail(failure)
        self._answer_probes()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise EngineFailed(str(self._failure))


def kv_fingerprint(settings: SimulatedSettings) -> KvFingerprint:
    """Who may exchange blocks with an engine of these settings."""
    return KvFingerprint(
        model=settings.model_digest,
        engine=ENGINE_NAME,
        dtype="uint8",
        block_size_tokens=settings.block_size,
        layers=1,
        kv_heads=1,
        unit_bytes=settings.block_bytes,
        packing="bytes",
        hash_algorithm="sha256 of parent and tokens",
        computation=f"blocks of {settings.block_size} tokens in {settings.block_bytes} bytes",
    )


def _intake(settings: SimulatedSettings) -> Intake:
    max_model_len = settings.max_model_len or context_length(settings.model_path)
    capacity = settings.device_blocks * settings.block_size
    if capacity < max_model_len:
        raise ValueError(
            f"{settings.device_blocks} blocks of {settings.block_size} tokens hold {capacity} tokens, which is less"
            f" than the model length of {max_model_len}: raise device_blocks or lower max_model_len"
        )
    return Intake(Vocabulary.load(settings.model_path), max_model_len, settings.block_size, settings.lora_names)
