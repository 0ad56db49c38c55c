"""One simulated engine: continuous batching with chunked prefill over a paged, prefix-caching device.

Each step gives every decoding job one token and spends what is left of the token budget on prompts, in order of
arrival. A prompt's blocks are all allocated when it is admitted, and published as they are scheduled, as vLLM does, so
that equal prompts share from the first. While nothing but decoding is to be done, steps that end nothing are taken
together (`Step.steps`), in exact time; whatever comes meanwhile waits for the end of the step under way
(`interrupt`), as it would.

Knows no time but what it is told, and tells nobody: what a step brought is returned.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from cluster.planning.device_cache import CacheChanges, DeviceCache
from cluster.planning.host_cache import HostCache
from cluster.planning.job import Job, Phase
from cluster.planning.job_blocks import JobBlocks
from cluster.planning.settings import EngineSettings
from cluster.planning.step import Chunk, Load, Step, StepEnd, Totals
from cluster.planning.step_time import Prefill


class Worker:
    """Owns its jobs and its device. At most one step is under way."""

    def __init__(self, settings: EngineSettings, first_own_key: int, host: HostCache | None = None) -> None:
        self.device = DeviceCache(settings.device_blocks)
        self.totals = Totals()
        self.step: Step | None = None
        self._settings = settings
        self._blocks = JobBlocks(self.device, settings.block_size_tokens, first_own_key, host)
        self._waiting: deque[Job] = deque()
        self._loading: list[Job] = []
        self._prefilling: list[Job] = []
        self._decoding: list[Job] = []
        self._context_tokens = 0
        self._admissions = 0

    def __iter__(self) -> Iterator[Job]:
        yield from self._decoding
        yield from self._prefilling
        yield from self._loading
        yield from self._waiting

    @property
    def running(self) -> int:
        """Jobs that hold blocks."""
        return len(self._decoding) + len(self._prefilling) + len(self._loading)

    @property
    def waiting(self) -> int:
        """Jobs that do not."""
        return len(self._waiting)

    def queued_prefill_tokens(self) -> int:
        """Tokens of prompts to be computed; of a prompt that waits all, because its cached part is not known yet."""
        return sum(j.pending for j in self._prefilling) + sum(j.pending for j in self._waiting)

    def add(self, job: Job) -> None:
        """A new job, last in line."""
        self._waiting.append(job)

    def begin(self, now: float) -> list[Load]:
        """Start the next step if none is under way and there is something to do; `step` says whether there was.

        Returns the loads that admitted jobs wait for.
        """
        if self.step is not None:
            return []
        self._make_room()
        budget = self._settings.max_batched_tokens - len(self._decoding)
        chunks: list[Chunk] = []
        for job in self._prefilling:
            budget -= self._take_chunk(job, budget, chunks)
        loads = self._admit(budget, chunks)
        if chunks or self._decoding:
            self._start(now, chunks)
        return loads

    def interrupt(self, now: float) -> None:
        """Something came: steps taken together end with the one under way at `now`."""
        step = self.step
        if step is None or step.steps == 1:
            return
        low, high = 1, step.steps
        while low < high:
            middle = (low + high) // 2
            if step.starts_at + self._run_s(step, middle) >= now:
                high = middle
            else:
                low = middle + 1
        step.steps, step.ends_at = low, step.starts_at + self._run_s(step, low)

    def end_step(self) -> StepEnd:
        """The step under way ends: what was computed is computed, tokens are made."""
        step = self.step
        assert step is not None, "no step is under way"
        self.step = None
        duration_s = step.ends_at - step.starts_at
        self.totals.steps += step.steps
        self.totals.busy_s += duration_s
        emitting = [job for job in step.decoding if job.phase is Phase.DECODE]
        for job in emitting:
            self._blocks.grow(job, step.steps)
            job.emitted += step.steps
            self._context_tokens += step.steps
        completed = self._end_chunks(step)
        done = [job for job in (*emitting, *completed) if not job.left]
        for job in done:
            self.end(job)
        device = self.device.take_changes()
        return StepEnd(
            starts_at=step.starts_at,
            steps=step.steps,
            step_s=duration_s / step.steps,
            emitting=len(emitting),
            chunks=step.chunks,
            completed=completed,
            done=done,
            device=device,
            host=self._blocks.save(),
        )

    def receive(self, keys: Sequence[int]) -> CacheChanges:
        """Another node's blocks came into the memory of this one."""
        return self._blocks.receive(keys)

    def loaded(self, load: Load) -> None:
        """A load is done; the job goes on computing what was not loaded."""
        job = load.job
        if job.phase is not Phase.LOADING:
            return
        self._loading.remove(job)
        job.computed = (job.published + load.blocks) * self._settings.block_size_tokens
        self._blocks.publish(job, job.computed)
        job.phase = Phase.PREFILL
        self._prefilling.append(job)

    def end(self, job: Job) -> None:
        """Take a job out, finished or not; its blocks become idle."""
        if job.phase is not Phase.ENDED:
            self._take_out(job)
            job.phase = Phase.ENDED

    def check(self) -> None:
        """Assert that phases, places and blocks agree."""
        places = [(Phase.DECODE, self._decoding), (Phase.PREFILL, self._prefilling), (Phase.LOADING, self._loading)]
        assert all(job.phase is phase for phase, jobs in places for job in jobs)
        assert all(job.phase is Phase.WAITING and not job.blocks for job in self._waiting)
        assert self._context_tokens == sum(job.context_tokens for job in self._decoding)
        assert all(job.published <= job.blocks for job in self)
        assert self.running <= self._settings.max_running
        self.device.check()

    def _admit(self, budget: int, chunks: list[Chunk]) -> list[Load]:
        loads: list[Load] = []
        reserved = self._blocks.growth(self._decoding, 1) if self._waiting else 0
        while self._waiting and budget > 0 and self.running < self._settings.max_running:
            job = self._waiting[0]
            if not self._blocks.place(job, reserved):
                break
            self._waiting.popleft()
            self._admissions += 1
            job.admitted = self._admissions
            if blocks := self._blocks.loadable(job):
                job.phase = Phase.LOADING
                self._loading.append(job)
                loads.append(Load(job, blocks, self._settings.load_s(blocks)))
                continue
            job.phase = Phase.PREFILL
            self._prefilling.append(job)
            budget -= self._take_chunk(job, budget, chunks)
        return loads

    def _take_chunk(self, job: Job, budget: int, chunks: list[Chunk]) -> int:
        count = min(job.pending, budget)
        if count <= 0:
            return 0
        chunks.append(Chunk(job, job.computed, count))
        self._blocks.publish(job, job.computed + count)
        return count

    def _start(self, now: float, chunks: list[Chunk]) -> None:
        step = Step(now, now, 1, self._context_tokens, list(self._decoding), chunks)
        if chunks:
            prefill = Prefill(sum(chunk.count for chunk in chunks), sum(chunk.pairs for chunk in chunks))
            step.ends_at += self._settings.step_time.step_s(prefill, len(step.decoding), step.context_tokens)
        else:
            step.steps = self._steps_together()
            step.ends_at += self._run_s(step, step.steps)
        self.step = step

    def _run_s(self, step: Step, steps: int) -> float:
        return self._settings.step_time.run_s(steps, len(step.decoding), step.context_tokens)

    def _steps_together(self) -> int:
        """As many as bring no end before the last, and for which there are blocks."""
        steps = min(job.left for job in self._decoding)
        while steps > 1 and not self._has_room(steps):
            steps //= 2
        return steps

    def _make_room(self) -> None:
        """Send the latest arrivals back until each decoding job can have its next token."""
        while self._decoding and not self._has_room(1):
            victim = max((*self._decoding, *self._prefilling), key=lambda job: job.admitted)
            self._take_out(victim)
            victim.target, victim.phase = victim.context_tokens, Phase.WAITING
            self._waiting.appendleft(victim)
            self.totals.preempted += 1

    def _has_room(self, steps: int) -> bool:
        """Whether all that decode can have so many tokens more; the bound is known sooner, and mostly enough."""
        available = self.device.available
        if self._blocks.most_growth(len(self._decoding), steps) <= available:
            return True
        return self._blocks.growth(self._decoding, steps) <= available

    def _end_chunks(self, step: Step) -> list[Job]:
        """Advance prompts; those that are complete make a token and decode from now on."""
        completed = []
        for chunk in step.chunks:
            job = chunk.job
            if job.phase is not Phase.PREFILL:
                continue
            job.computed += chunk.count
            job.work_tokens += chunk.count
            self.totals.computed_tokens += chunk.count
            if not job.pending:
                self._prefilling.remove(job)
                job.phase = Phase.DECODE
                job.emitted += 1
                self._decoding.append(job)
                self._context_tokens += job.context_tokens
                completed.append(job)
        return completed

    def _take_out(self, job: Job) -> None:
        match job.phase:
            case Phase.WAITING:
                if job in self._waiting:  # else its blocks are still on their way from another node
                    self._waiting.remove(job)
            case Phase.LOADING:
                self._loading.remove(job)
            case Phase.PREFILL:
                self._prefilling.remove(job)
            case _:
                self._decoding.remove(job)
                self._context_tokens -= job.context_tokens
        self._blocks.release(job)
