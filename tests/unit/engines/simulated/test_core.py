"""Any order of submitting, stepping, aborting and forgetting: right tokens, and in the end nobody holds a block."""

from pathlib import Path

from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.dataplane.frames import Delta
from cluster.engines.simulated.core import EngineCore
from cluster.engines.simulated.delta_queue import DeltaQueue
from cluster.engines.simulated.intake import Intake
from cluster.engines.simulated.sequence import Job
from cluster.engines.simulated.settings import SimulatedSettings
from cluster.engines.simulated.vocabulary import Vocabulary
from tests.unit.engines.simulated.bench import prompt_of, reference, request, settings

LENGTH = 48


class Recorder(DeltaQueue):
    """Keeps every token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[int] = []
        self.ended = False

    def put(self, delta: Delta) -> None:
        assert not self.ended
        self.tokens += delta.token_ids
        self.ended = delta.finish_reason is not None


class CoreMachine(RuleBasedStateMachine):
    used: SimulatedSettings
    vocabulary: Vocabulary

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[Job, Recorder]] = []

    @initialize()
    def start(self) -> None:
        intake = Intake(self.vocabulary, LENGTH, self.used.block_size)
        self.intake = intake
        self.core = EngineCore(self.used, intake, None, lambda: None)

    @rule(prefix=st.integers(0, 2), length=st.integers(1, LENGTH - 1), most=st.integers(1, 20))
    def submit(self, prefix: int, length: int, most: int) -> None:
        job = self.intake.job(request("job", prompt_of(LENGTH, first=prefix)[:length], max_tokens=most), 0.0)
        job.queue = recorder = Recorder()
        self.core.submit(job)
        self.open.append((job, recorder))

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.core.execute(self.core.plan(0.0), 0.0)
        self.open = [(job, recorder) for job, recorder in self.open if not self.finished(job, recorder)]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), between=st.booleans())
    def abort(self, data: st.DataObject, between: bool) -> None:
        job, recorder = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        made = len(recorder.tokens)
        plan = self.core.plan(0.0) if between else None
        self.core.abort(job)
        if plan is not None:
            self.core.execute(plan, 0.0)
        assert len(recorder.tokens) == made

    @rule()
    def forget(self) -> None:
        self.core.table.clear()

    @invariant()
    def is_consistent(self) -> None:
        if hasattr(self, "core"):
            self.core.check()

    def finished(self, job: Job, recorder: Recorder) -> bool:
        if recorder.ended:
            prompt = list(job.request.token_ids)
            assert recorder.tokens == reference(self.used, prompt, len(recorder.tokens))
            assert len(prompt) + len(recorder.tokens) == job.length_limit
        return recorder.ended

    def teardown(self) -> None:
        while self.open:
            self.step(6)
        assert self.core.table.held == 0


def test_every_schedule_gives_right_tokens_and_releases_every_block(model: Path) -> None:
    CoreMachine.used = settings(model, block_size=4, device_blocks=14, max_batched_tokens=16, max_running=4)
    CoreMachine.vocabulary = Vocabulary.load(model)
    case = CoreMachine.TestCase()
    case.settings = examples(max_examples=40, stateful_step_count=25, deadline=None)
    case.runTest()
