"""Small engines and jobs for the tests of the simulator."""

from array import array
from dataclasses import dataclass

from cluster.planning.job import Job
from cluster.planning.settings import EngineSettings
from cluster.planning.step import StepEnd
from cluster.planning.step_time import Prefill
from cluster.planning.worker import Worker


@dataclass(frozen=True, slots=True)
class OneSecond:
    """Every step takes a second and a tenth for each prompt token."""

    def step_s(self, prefill: Prefill, decoding: int, context_tokens: int) -> float:
        return 1.0 + 0.1 * prefill.tokens

    def run_s(self, steps: int, decoding: int, context_tokens: int) -> float:
        return float(steps)


def engine(blocks: int = 100, budget: int = 64, most: int = 8) -> EngineSettings:
    """Blocks of four tokens."""
    return EngineSettings(
        step_time=OneSecond(),
        block_size_tokens=4,
        device_blocks=blocks,
        max_batched_tokens=budget,
        max_running=most,
        kv_bytes_per_token=1,
        load_bytes_per_s=4.0,
    )


def worker(blocks: int = 100, budget: int = 64, most: int = 8) -> Worker:
    """One worker; its own keys begin at 1,000,000."""
    return Worker(engine(blocks, budget, most), first_own_key=1_000_000)


def job(number: int, prompt_tokens: int, output_tokens: int, first_key: int = 0) -> Job:
    """Prompts with equal `first_key` begin alike."""
    keys = array("Q", range(first_key, first_key + prompt_tokens // 4))
    return Job(number, 0, prompt_tokens, output_tokens, keys)


def step(of: Worker, now: float) -> tuple[float, StepEnd]:
    """Take a step: when it ends, and what it brings."""
    of.begin(now)
    assert of.step is not None
    ends_at = of.step.ends_at
    end = of.end_step()
    of.check()
    return ends_at, end
