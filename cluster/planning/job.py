"""One leg of a request on one simulated engine."""

from array import array
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """Where a job is. It moves down this list; preemption sends it back to WAITING, and it may end anywhere."""

    WAITING = "waiting"
    LOADING = "loading"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Job:
    """`request` is its number in the trace and `gateway` who sent it.

    `target` tokens have to be in the cache before the next token comes: the prompt, and after a preemption what was
    made since. When it is
    `prefilled_elsewhere`, `supplied` whole blocks of the prompt lie in the node's memory as it starts. It loads at most
    the first `load_limit_tokens`, None: all that is there. `saved` blocks went to the node's memory.
    `keys` grows past the prompt as blocks fill with answer, under keys that nothing else has. `work_tokens` of prompt
    were really computed for it. `admitted` orders jobs by when they were let in.
    """

    request: int
    gateway: int
    prompt_tokens: int
    output_tokens: int
    keys: "array[int]"
    prefilled_elsewhere: bool = False
    supplied: int = 0
    load_limit_tokens: int | None = None
    phase: Phase = Phase.WAITING
    target: int = 0
    computed: int = 0
    emitted: int = 0
    blocks: int = 0
    published: int = 0
    saved: int = 0
    work_tokens: int = 0
    admitted: int = 0

    def __post_init__(self) -> None:
        self.target = self.prompt_tokens

    @property
    def pending(self) -> int:
        """Tokens to compute before the next token comes."""
        return self.target - self.computed

    @property
    def context_tokens(self) -> int:
        """Tokens in the cache, the last one made included."""
        return self.prompt_tokens + self.emitted

    @property
    def left(self) -> int:
        """Tokens it will still make."""
        return self.output_tokens - self.emitted
