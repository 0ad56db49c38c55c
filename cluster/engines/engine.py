"""The seam between a worker and whatever computes tokens.

Two implementations: `cluster.engines.vllm_engine.VllmEngine` and `cluster.engines.simulated.engine.SimulatedEngine`;
one contract suite (`tests/contracts/test_engine.py`) runs over both.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cluster.dataplane.frames import Delta, Emitted


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One leg, as an engine gets it.

    `sampling` is vLLM's SamplingParams in MessagePack. With `handoff_id` the engine announces the prompt's blocks
    under it and commits them to the node's store as they are finished (a prefill leg; `sampling` then asks for one
    token). On a decode leg `expected_blocks` is how many of the prompt's first blocks prefill announced; those which
    the engine computes all the same are reported as recomputed, under "corrupt", "failed" (the store was lost while
    they were read) or, when they could not be found, `missing_reason`: what the hand-off's outcome already told.
    Of the prompt's tokens only the first `load_limit_tokens` may come from the node's store (None: all): loading is not
    always faster than computing.

    With `emitted` the engine goes on with this one output of a request that another engine began: as if it had made
    those tokens itself, with the positions, counts and states that follow from them, and with `sampling` as it was,
    whose `n` says no more than which seed the output has. What comes is new: tokens after those, text after the
    characters that were sent.
    """

    request_id: str
    token_ids: Sequence[int]
    sampling: bytes
    handoff_id: str | None = None
    cache_salt: str | None = None
    lora_name: str | None = None
    priority: int = 0
    trace_headers: Mapping[str, str] | None = None
    expected_blocks: int = 0
    missing_reason: Literal["late", "failed", "evicted", "full"] = "evicted"
    load_limit_tokens: int | None = None
    emitted: Emitted | None = None

    @property
    def known_tokens(self) -> Sequence[int]:
        """The prompt and what follows it already."""
        return self.token_ids if self.emitted is None else [*self.token_ids, *self.emitted.token_ids]


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """A snapshot. `counters` only grow; names are Prometheus-style without prefix, e.g. `loaded_blocks`.

    `steps` grows whenever the engine gets something done: one that has work and is not wedged makes steps. A `dead` one
    makes none any more.
    """

    running: int
    waiting: int
    queued_prefill_tokens: int
    kv_usage: float
    counters: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    dead: bool = False


@dataclass(frozen=True, slots=True)
class BlocksChanged:
    """A change of what the device's prefix cache holds, in the engine's own hashes.

    `stored`: `hashes` with their tokens, a chain that continues `parent` (None: the prompt's start). The chain ends
    before a block whose content is more than its tokens, the salt and the LoRA name (an image, say): `inexpressible`
    is how many were left out for that. `removed`: `hashes` are gone. `cleared`: everything is gone.
    """

    kind: Literal["stored", "removed", "cleared"]
    hashes: Sequence[bytes] = ()
    parent: bytes | None = None
    token_ids: Sequence[int] = ()
    cache_salt: str | None = None
    lora_name: str | None = None
    inexpressible: int = 0


class Engine(Protocol):
    """Computes tokens. Built by an async factory that returns when it is ready to serve."""

    def generate(self, request: EngineRequest) -> AsyncIterator[Delta]:
        """The request's tokens as they are made; the last delta of each output has a `finish_reason`.

        Closing or cancelling the iterator aborts the request and frees its blocks. Raises
        `cluster.errors.InvalidRequest` for what the engine cannot accept, `cluster.errors.CannotContinue` for what it
        cannot go on with as it began, and `cluster.errors.EngineFailed` when it dies.
        """
        ...

    def events(self) -> AsyncIterator[Sequence[BlocksChanged]]:
        """Changes of the device's prefix cache, in order, from now on. One consumer."""
        ...

    def statistics(self) -> EngineStatistics:
        """A truthful snapshot, cheap enough to take every 50 ms."""
        ...

    async def check_health(self) -> None:
        """Make one step, of a few tokens at most, and return; raise `cluster.errors.EngineFailed` when that fails.

        A wedged engine does neither: the deadline is the caller's.
        """
        ...

    async def close(self) -> None:
        """End the engine and every process it started, also those that have been stopped."""
        ...
