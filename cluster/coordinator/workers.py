"""The seam between the coordinator and the workers: open a stream, read merged deltas, close it.

Real: `cluster.dataplane.pool.WorkerPool` over TCP. Fake: `tests` drive the coordinator with workers in virtual time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.coordinator.placement import Placement
from cluster.dataplane.frames import Delta, Emitted, Fetch, Handoff, Role, WorkerInfo
from routing.fleet import Fleet


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request as the gateway hands it to the coordinator.

    `sampling` is vLLM's SamplingParams in MessagePack, whole. `outputs` is its `n`, `max_tokens` the most tokens one
    output may have. `may_disaggregate` is False where prefill elsewhere is of no use, e.g. with prompt logprobs.
    `placement`, if there is one, is told where the request goes. `first_token_s` is how long the client waits for the
    first token; None: as long as everybody.
    """

    request_id: str
    token_ids: Sequence[int]
    sampling: bytes
    max_tokens: int
    outputs: int = 1
    cache_salt: str | None = None
    lora_name: str | None = None
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    may_disaggregate: bool = True
    placement: Placement | None = None
    first_token_s: float | None = None


@dataclass(frozen=True, slots=True)
class Leg:
    """One stream to open on one worker. `sampling` of a prefill leg asks for one token. What the leg that computes the
    prompt fetches and loads: see `cluster.dataplane.frames.Generate`.

    With `emitted` a decode leg goes on with these outputs of the request, and only with these, from where they are.
    """

    role: Role
    request: GenerationRequest
    sampling: bytes
    handoff: Handoff | None
    deadline_s: float
    fetch: Fetch | None = None
    load_limit_tokens: int | None = None
    emitted: Sequence[Emitted] = ()

    @property
    def outputs(self) -> int:
        """How many outputs it is to finish."""
        return 1 if self.role == "prefill" else len(self.emitted) or self.request.outputs


class HandedBack(Exception):
    """A worker wants a stream of its own to go on elsewhere. It goes on there until it is closed."""


class Stream(Protocol):
    """One leg on one worker. Whoever opened it closes it, however it ends."""

    async def next(self) -> Sequence[Delta]:
        """What has come since the last call, at most one merged delta for each output; waits for at least one.

        Raises `ReplicaLost`, `EngineFailed`, `InvalidRequest`, `DeadlineExceeded`, `ReplicaDraining` or
        `CannotContinue`, and then has ended. Raises `HandedBack`, at most once a second, without having ended.
        """
        ...

    def source_lost(self) -> None:
        """Tell a decode leg that its prefill leg failed."""
        ...

    def close(self) -> None:
        """Abort the leg unless it has ended; a `next` that waits raises `ReplicaLost`. May be called twice."""
        ...


class Workers(Protocol):
    """The workers this gateway is connected to."""

    def fleet(self) -> Fleet:
        """All connected workers as the router sees them, now."""
        ...

    def info(self, replica_id: str) -> WorkerInfo:
        """Raises `ReplicaLost` when it is not connected any more."""
        ...

    def store_on(self, node_id: str, kv_fingerprint: str) -> str:
        """The address of the node's store of such blocks, as a connected worker there knows it; else empty."""
        ...

    def open(self, replica_id: str, leg: Leg) -> Stream:
        """Start a leg. Returns at once; raises `ReplicaLost` when the worker is not connected any more."""
        ...

    def let_go(self, replica_id: str, handoff: Handoff) -> None:
        """Nobody will come for a hand-off that a prefill leg there may have announced. When it is gone, another worker
        is told that has the same store.
        """
        ...
