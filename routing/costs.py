"""What a request costs on replicas of one kind, in seconds. Pure arithmetic.

The cost of a placement is the request's own time, and what it takes from others:

    time to first token                       queue + compute + load + first step
  + expected output × time of a decode step   with this request in the batch
  + expected output × what it adds to a step × requests that decode there
  + seconds of prefill × CAPACITY             the replica computes for nobody else meanwhile
  + seconds of prefill × requests that decode there, when the decode replica computes the prompt

`docs/decisions/routing-cost.md` says why each term is there. What is the same for many replicas is computed once for
each request: that makes a decision cheap in a large fleet, where most replicas have nothing of the prompt.
"""

from typing import NamedTuple

from routing.standing import Kind

CAPACITY = 1.0
"""What a second of prefill is worth to requests that are still to come, in seconds."""


class Job(NamedTuple):
    """A request in numbers. `output` is expected for each of `outputs`; `itl_target_s` is infinite when none is set."""

    prompt: int
    output: int
    outputs: int
    itl_target_s: float

    @property
    def context(self) -> int:
        """Tokens that one decode step of one output reads, on average over its life."""
        return self.prompt + self.output // 2


class Lacking(NamedTuple):
    """What a replica has to do for a prompt. `work_s` computes `tokens` in `chunks` steps, after `load_s`.

    `capacity_s` is the engine's time for it, whoever shares its steps.
    """

    tokens: int
    chunks: int
    work_s: float
    load_s: float
    capacity_s: float


class Handover(NamedTuple):
    """What a decode replica has to do for a prompt that was computed elsewhere: load blocks, compute the rest."""

    load_s: float
    work_s: float


class Terms:
    """A request on replicas of one `kind`. Blocks are counted without that of the last token: it is never credited.

    `whole` blocks can be handed over. `request_s` is what the request adds to a decode step.
    """

    __slots__ = ("_handovers", "_job", "_lacking", "blocks", "kind", "request_s", "whole")

    def __init__(self, kind: Kind, job: Job) -> None:
        self.kind = kind
        self.whole = (job.prompt - 1) // kind.block_size
        self.request_s = job.outputs * (kind.step_request_s + kind.step_context_s * job.context)
        size = kind.block_size
        self.blocks = -(-job.prompt // size) + job.outputs * -(-job.output // size)
        self._job = job
        self._lacking: dict[tuple[int, int], Lacking] = {}
        self._handovers: dict[int, Handover] = {}

    def lacking(self, ready: int, host: int) -> Lacking:
        """With `ready` blocks on the device by the time it begins, and `host` with those of the node's store."""
        found = self._lacking.get((ready, host))
        if found is None:
            found = self._lacking[ready, host] = self._least(ready, host)
        return found

    def handover(self, device: int) -> Handover:
        """With `device` blocks there already, when the other whole blocks are in the node's store."""
        found = self._handovers.get(device)
        if found is None:
            kind, fetched = self.kind, (self.whole - device) * self.kind.block_size
            rest = self._job.prompt - self.whole * kind.block_size
            load_s = kind.host_latency_s + fetched * kind.host_token_s if fetched else 0.0
            work_s = rest * (kind.token_s + kind.attention_s * self._job.prompt)
            found = self._handovers[device] = Handover(load_s, work_s)
        return found

    def _least(self, ready: int, host: int) -> Lacking:
        """The store's blocks are loaded where that is faster than computing them."""
        computed = self._computing(ready, 0.0)
        if host <= ready:
            return computed
        kind = self.kind
        load_s = kind.host_latency_s + (host - ready) * kind.block_size * kind.host_token_s
        loaded = self._computing(host, load_s)
        return loaded if load_s + loaded.work_s < computed.work_s else computed

    def _computing(self, cached_blocks: int, load_s: float) -> Lacking:
        kind = self.kind
        cached = cached_blocks * kind.block_size
        tokens = self._job.prompt - cached
        work_s = tokens * (kind.token_s + kind.attention_s * (cached + 0.5 * tokens))
        capacity_s = work_s + kind.chunk_s * tokens / kind.chunk_tokens
        return Lacking(tokens, -(-tokens // kind.chunk_tokens), work_s, load_s, capacity_s)
