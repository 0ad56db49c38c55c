"""The engine without its waiting: jobs come in, steps are planned and executed, tokens go out. Synchronous.

Owns the batch, the block table and the device. Whoever drives it (`SimulatedEngine`) decides when a step happens.
"""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from cluster.engines.simulated.batch import Batch, Plan, reusable_blocks
from cluster.engines.simulated.block_table import BlockTable
from cluster.engines.simulated.device import DeviceMemory
from cluster.engines.simulated.emission import emit
from cluster.engines.simulated.event_log import EventLog
from cluster.engines.simulated.faults import Injected
from cluster.engines.simulated.intake import Intake
from cluster.engines.simulated.loader import LoadResult
from cluster.engines.simulated.saver import BlockSaver
from cluster.engines.simulated.sequence import Job, Phase, Sequence
from cluster.engines.simulated.settings import SimulatedSettings
from cluster.engines.simulated.store_link import StoreLink
from cluster.engines.simulated.tokens import draw, pick
from cluster.errors import EngineFailed

_EVENT_HASHES_PER_BLOCK = 4  # how far a consumer of events may lag, in turnovers of the whole device


class EngineCore:
    """Invariant: blocks are held by running sequences and by the saver, by nobody else; see `check`."""

    def __init__(
        self, settings: SimulatedSettings, intake: Intake, link: StoreLink | None, blocks_released: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._intake = intake
        self.injected = Injected(settings.faults)
        self.device = DeviceMemory(settings.device_blocks, settings.block_bytes)
        self.table = BlockTable(settings.device_blocks)
        self.batch = Batch(self.table, settings.max_running, settings.max_batched_tokens)
        self.log = EventLog(settings.device_blocks * _EVENT_HASHES_PER_BLOCK)
        self.saver = BlockSaver(link, self.device, self.table, self.injected, blocks_released) if link else None
        self.counters: Counter[str] = Counter()
        self.load_s = 0.0
        self._link = link
        self._random = random.Random()

    def submit(self, job: Job) -> None:
        """Queue a job's first output; the others follow when its prompt is computed, and find it cached."""
        sequence = self._intake.first(job)
        if self.saver and job.request.handoff_id is not None:
            sequence.extend_hashes()
            self.saver.announce(job.request.handoff_id, tuple(sequence.hashes))
        self.batch.add(sequence)

    def abort(self, job: Job) -> None:
        """Forget a job, whatever became of it: no token of it is computed from now on, its blocks are released."""
        for sequence in job.sequences:
            self.batch.end(sequence)
        self._conclude(job)

    def plan(self, now_s: float) -> Plan:
        """Decide on the next step and allocate its blocks."""
        plan = self.batch.plan(may_load=self._link is not None and self._link.attachment is not None)
        self.log.removed(self.table.drain_evicted())
        self.counters["preemptions"] += plan.preempted
        for chunk in plan.chunks:
            if chunk.sequence.started_s is None:
                self._start(chunk.sequence, now_s)
        return plan

    def loaded(self, sequence: Sequence, first: int, result: LoadResult, began_s: float, now_s: float) -> None:
        """The store gave what it has of a LOADING sequence's blocks, from block `first` on, since `began_s`."""
        self.counters["loads"] += 1
        self.load_s += now_s - began_s
        self.counters["loaded_blocks"] += result.usable
        self.counters["corrupt_loads"] += result.reason == "corrupt"
        self.counters["failed_loads"] += result.reason in ("failed", "late")
        if sequence.phase is not Phase.LOADING:
            return
        end = first + result.usable
        self._publish(sequence, first, end)
        self.batch.loaded(sequence, end)
        sequence.loaded_blocks += result.usable
        sequence.recomputed_blocks, sequence.recompute_reason = result.corrupt, result.reason
        self._start(sequence, now_s)

    def execute(self, plan: Plan, now_s: float) -> None:
        """Carry out a step; sequences that ended since it was planned are left out.

        Raises `EngineFailed` when an injected fault kills the engine.
        """
        self.counters["steps"] += 1
        for chunk in plan.chunks:
            if chunk.sequence.phase is Phase.RUNNING:
                self._compute(chunk.sequence, chunk.count, now_s)

    def queued_prefill_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        return sum(sequence.pending for sequence in self.batch if sequence.pending > 1 or not sequence.begun)

    def kv_usage(self) -> float:
        """The share of blocks that requests hold; those that only wait to be committed are about to be free."""
        held = {block for sequence in self.batch.running for block in sequence.blocks}
        return len(held) / self._settings.device_blocks

    def forget_cached(self) -> None:
        """Nothing is cached any more; running requests keep what they hold."""
        self.table.clear()
        self.log.cleared()

    def check(self) -> None:
        """Raise AssertionError unless batch and block table are consistent."""
        self.batch.check()

    def _start(self, sequence: Sequence, now_s: float) -> None:
        if sequence.started_s is None:
            sequence.started_s = now_s
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
            self.counters["cached_tokens"] += sequence.computed
            self._count_recomputed(sequence)
            if sequence.job.announced:
                self._save(sequence, 0, sequence.filled)

    def _count_recomputed(self, sequence: Sequence) -> None:
        """Whole blocks that prefill announced, or the store had, and that are computed here all the same."""
        request = sequence.job.request
        missing = min(request.expected_blocks, reusable_blocks(sequence)) - sequence.filled
        sequence.recomputed_blocks = max(missing, sequence.recomputed_blocks)
        if sequence.recomputed_blocks == 0:
            sequence.recompute_reason = ""
            return
        sequence.recompute_reason = sequence.recompute_reason or self._missing_reason(request.missing_reason)
        self.counters[f"recomputed_blocks_{sequence.recompute_reason}"] += sequence.recomputed_blocks

    def _missing_reason(self, told: str) -> str:
        return "failed" if self._link is not None and self._link.attachment is None else told

    def _compute(self, sequence: Sequence, count: int, now_s: float) -> None:
        sequence.computed += count
        if not sequence.begun:
            self.counters["computed_prompt_tokens"] += count
        self._fill(sequence, sequence.filled, sequence.computed // sequence.block_size)
        if sequence.pending == 0:
            self._sample(sequence, now_s)

    def _fill(self, sequence: Sequence, first: int, end: int) -> None:
        """Compute the bytes of blocks `first` to `end`."""
        if first >= end:
            return
        sequence.extend_hashes()
        previous = self.device.digest(sequence.blocks[first - 1]) if first else sequence.job.origin
        for index in range(first, end):
            self.device.compute(sequence.blocks[index], previous, sequence.block_tokens(index))
            previous = self.device.digest(sequence.blocks[index])
        sequence.filled = end
        self._publish(sequence, first, end)
        self._save(sequence, first, end)

    def _publish(self, sequence: Sequence, first: int, end: int) -> None:
        """Cache blocks by content; contents cached before, in another block, are not stored anew."""
        known = [
            index
            for index in range(first, end)
            if not self.table.publish(sequence.blocks[index], sequence.hashes[index])
        ]
        for before, after in pairwise([first - 1, *known, end]):
            self.log.stored(sequence, before + 1, after)

    def _save(self, sequence: Sequence, first: int, end: int) -> None:
        if self.saver is None:
            return
        kept = [index for index in range(first, end) if index != self.injected.current.withhold_block]
        keys = [sequence.hashes[index] for index in kept]
        blocks = [sequence.blocks[index] for index in kept]
        self.saver.save(keys, blocks, sequence.job.tenant, self._settings.device_blocks)

    def _sample(self, sequence: Sequence, now_s: float) -> None:
        whole = len(sequence.tokens) // sequence.block_size
        tail = sequence.tokens[whole * sequence.block_size :].tobytes()
        state = self.device.fold(sequence.blocks, whole, tail, len(sequence.tokens))
        sampling = sequence.job.sampling
        number = draw(state, sampling, sequence.output, self._random.getrandbits)
        forbidden = sampling.stop_tokens if sequence.made < sampling.min_tokens else ()
        token_id = pick(self._intake.vocabulary.candidates, number, forbidden)
        sequence.tokens.append(token_id)
        self._emit(sequence, token_id, number, now_s)

    def _emit(self, sequence: Sequence, token_id: int, number: int, now_s: float) -> None:
        job = sequence.job
        self.counters["tokens"] += 1
        delta = emit(sequence, self._intake.vocabulary, token_id, number, now_s)
        if sequence.made == 1 and sequence.output == 0 and job.request.emitted is None:
            for output in range(1, job.sampling.n):
                self.batch.add(self._intake.sequence(job, output))
        if delta.finish_reason is not None:
            self.batch.end(sequence)
            if all(other.phase is Phase.ENDED for other in job.sequences):
                self._conclude(job)
        job.queue.put(delta)
        if self.injected.dies_emitting(1):
            raise EngineFailed("an injected fault killed the engine")

    def _conclude(self, job: Job) -> None:
        if self.saver and job.request.handoff_id is not None and not job.concluded:
            job.concluded = True
            self.saver.conclude(job.request.handoff_id)
