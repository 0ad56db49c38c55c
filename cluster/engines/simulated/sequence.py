"""One output of one request on its way through the engine, and the table of its phases.

WAITING ── admit ──> RUNNING ── preempt ──> WAITING
WAITING ── admit_loading ──> LOADING ── loaded ──> RUNNING
any ── end ──> ENDED
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Literal

from cluster.dataplane.frames import Emitted
from cluster.engines.engine import EngineRequest
from cluster.engines.simulated.delta_queue import DeltaQueue
from cluster.engines.simulated.output_text import OutputText
from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.tokens import block_hash
from kvtransfer.tenant import Tenant, tenant_of


class Phase(Enum):
    """Where a sequence is. LOADING and RUNNING ones hold blocks, the others none."""

    WAITING = "waiting"
    LOADING = "loading"
    RUNNING = "running"
    ENDED = "ended"


Event = Literal["admit", "admit_loading", "loaded", "preempt", "end"]

_NEXT: dict[Phase, dict[Event, Phase]] = {
    Phase.WAITING: {"admit": Phase.RUNNING, "admit_loading": Phase.LOADING, "end": Phase.ENDED},
    Phase.LOADING: {"loaded": Phase.RUNNING, "end": Phase.ENDED},
    Phase.RUNNING: {"preempt": Phase.WAITING, "end": Phase.ENDED},
    Phase.ENDED: {},
}


@dataclass(slots=True, eq=False)
class Job:
    """What the outputs of one request share. `length_limit` bounds prompt plus output, in tokens."""

    request: EngineRequest
    sampling: Sampling
    length_limit: int
    root_hash: bytes
    origin: int
    submitted_s: float
    queue: DeltaQueue = field(default_factory=DeltaQueue)
    sequences: "list[Sequence]" = field(default_factory=list)
    concluded: bool = False  # nothing more is committed for its hand-off

    @property
    def tenant(self) -> Tenant:
        """Whose blocks it makes."""
        return tenant_of(self.request.cache_salt)

    @property
    def announced(self) -> bool:
        """Whether another engine waits for this prompt's blocks."""
        return self.request.handoff_id is not None


@dataclass(slots=True, eq=False)
class Sequence:
    """Invariant: `blocks` covers all `tokens` while RUNNING or LOADING, is empty otherwise. The first `filled` of them
    are whole and never written again; `computed` tokens need no computing, which is at least one less than there are.
    """

    job: Job
    output: int
    block_size: int
    tokens: "array[int]"
    text: OutputText | None
    phase: Phase = Phase.WAITING
    hashes: list[bytes] = field(default_factory=list)
    blocks: "array[int]" = field(default_factory=partial(array, "i"))
    computed: int = 0
    filled: int = 0
    prompt_tokens: int = field(init=False)
    cumulative_logprob: float = 0.0
    cached_tokens: int | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    loaded_blocks: int = 0
    recomputed_blocks: int = 0
    recompute_reason: str = ""

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)

    def advance(self, event: Event) -> None:
        """Change the phase; KeyError for what cannot happen."""
        self.phase = _NEXT[self.phase][event]

    def go_on(self, emitted: Emitted) -> None:
        """Be where another engine was after these tokens."""
        self.tokens.extend(emitted.token_ids)
        self.cumulative_logprob = emitted.cumulative_logprob or 0.0
        if self.text is not None:
            self.text.go_on(emitted.token_ids, emitted.text_chars)

    @property
    def begun(self) -> bool:
        """Whether this engine has made a token of it."""
        return self.first_token_s is not None

    @property
    def made(self) -> int:
        """Tokens of the output so far, whoever made them."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def pending(self) -> int:
        """Tokens whose KV has to be computed before the next token can be emitted."""
        return len(self.tokens) - self.computed

    @property
    def blocks_needed(self) -> int:
        """Blocks that cover all tokens so far."""
        return -(-len(self.tokens) // self.block_size)

    def reuse(self, blocks: int) -> None:
        """The first `blocks` blocks are there. The last token is computed all the same: the next follows from it."""
        self.filled = blocks
        self.computed = min(blocks * self.block_size, len(self.tokens) - 1)

    def block_tokens(self, index: int) -> bytes:
        """The tokens of a whole block."""
        return self.tokens[index * self.block_size : (index + 1) * self.block_size].tobytes()

    def extend_hashes(self) -> None:
        """Make `hashes` cover every whole block of `tokens`."""
        parent = self.hashes[-1] if self.hashes else self.job.root_hash
        for index in range(len(self.hashes), len(self.tokens) // self.block_size):
            parent = block_hash(parent, self.block_tokens(index))
            self.hashes.append(parent)
