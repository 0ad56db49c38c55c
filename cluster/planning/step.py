"""What passes between a simulated engine and who drives it. Values only."""

from dataclasses import dataclass

from cluster.planning.device_cache import CacheChanges
from cluster.planning.job import Job


@dataclass(frozen=True, slots=True)
class Load:
    """`job` gets `blocks` from host memory, which takes `seconds` once the loads before it are done."""

    job: Job
    blocks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` tokens of the prompt of `job` are computed, after the first `start`."""

    job: Job
    start: int
    count: int

    @property
    def end(self) -> int:
        """Tokens that are there afterwards."""
        return self.start + self.count

    @property
    def pairs(self) -> float:
        """Of a token computed and one before it: what its attention costs is in proportion."""
        return self.count * (self.start + self.count / 2)


@dataclass(slots=True)
class Step:
    """What is being computed: `steps` steps at once when it is decoding alone. `context_tokens` is at the start."""

    starts_at: float
    ends_at: float
    steps: int
    context_tokens: int
    decoding: list[Job]
    chunks: list[Chunk]


@dataclass(frozen=True, slots=True)
class StepEnd:
    """What a step brought. `emitting` jobs made `steps` tokens each, `step_s` apart on average.

    The prompts of `chunks` have more of their blocks; those `completed` made a token. `host` is what changed in the
    node's memory.
    """

    starts_at: float
    steps: int
    step_s: float
    emitting: int
    chunks: list[Chunk]
    completed: list[Job]
    done: list[Job]
    device: CacheChanges
    host: CacheChanges


@dataclass(slots=True)
class Totals:
    """Counters of one engine; they only grow."""

    steps: int = 0
    computed_tokens: int = 0
    preempted: int = 0
    busy_s: float = 0.0
