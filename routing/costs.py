"""What one placement costs, in seconds. Pure arithmetic, run for every fit replica and every request.

The cost of a placement is the request's own time, and what it takes from others:

    time to first token                       queue + compute + load + first step
  + expected output × time of a decode step   with this request in the batch
  + expected output × what it adds to a step × requests that decode there
  + seconds of prefill × CAPACITY             the replica computes for nobody else meanwhile
  + seconds of prefill × requests that decode there, when the decode replica computes the prompt

`docs/decisions/routing-cost.md` says why each term is there.
"""

import math
from typing import NamedTuple

from routing.account import Account
from routing.standing import Standing

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
        """Tokens that one of its decode steps reads, on average over its life."""
        return self.outputs * (self.prompt + self.output // 2)


class Computing(NamedTuple):
    """A prompt computed on one replica. `work_s` is the engine's time for it, whoever shares its steps."""

    queue_s: float
    compute_s: float
    load_s: float
    work_s: float
    computed: int

    @property
    def done_s(self) -> float:
        """Until the prompt is computed, from now."""
        return self.queue_s + self.compute_s + self.load_s


class Decoding(NamedTuple):
    """A request that decodes on one replica. `cost_s` covers all output tokens and the decode steps of others."""

    cost_s: float
    itl_s: float
    step_s: float
    batch: float
    violation: float
    cached_blocks: int


def decoding(standing: Standing, account: Account, job: Job, cached_blocks: int) -> Decoding:
    """Adding the request's outputs to the replica's batch; `cached_blocks` of its prompt are on the device.

    `step_s` is a step without it, 0 when nothing runs. `violation` is by what fraction the inter-token latency or the
    device's blocks would exceed what they may be. Other gateways' requests are taken to be like this one.
    """
    others, outputs, output = standing.others_requests, job.outputs, job.output
    batch = account.requests + others
    read = account.context_tokens + others * job.context / outputs
    request_s = standing.step_request_s * outputs + standing.step_context_s * job.context
    step_s = standing.step_s + standing.step_request_s * batch + standing.step_context_s * read
    itl_s = step_s + request_s
    cost_s = output * (itl_s + request_s * batch)
    excess = batch + outputs - standing.max_running
    if excess > 0:
        cost_s += excess * output * itl_s / standing.max_running
    violation = max(0.0, itl_s / job.itl_target_s - 1.0)
    if standing.kv_blocks:
        held = standing.others_blocks + account.blocks + blocks_needed(standing, job, cached_blocks)
        if held > standing.kv_blocks:
            violation += held / standing.kv_blocks - 1.0
    return Decoding(cost_s, itl_s, step_s if batch else 0.0, batch, violation, cached_blocks)


def blocks_needed(standing: Standing, job: Job, cached_blocks: int) -> int:
    """Device blocks that the request will newly hold while it decodes."""
    size = standing.block_size
    return max(0, math.ceil(job.prompt / size) - cached_blocks) + job.outputs * math.ceil(job.output / size)


def computing(
    standing: Standing,
    account: Account,
    prompt: int,
    device_blocks: int,
    host_blocks: int,
    step_s: float,
    now: float,
) -> Computing:
    """Computing what the replica lacks of the prompt.

    `device_blocks` are there when the queue in front is done, `host_blocks` at least as many with the node's store;
    both without the last block, which is never credited. The store's are loaded where that is faster than computing.
    `step_s` is a decode step that each of its steps also contains, 0 when none.
    """
    cached = device_blocks * standing.block_size
    tokens = prompt - cached
    work_s = tokens * (standing.token_s + standing.attention_s * (cached + 0.5 * tokens))
    load_s = 0.0
    if host_blocks > device_blocks:
        loaded = (host_blocks - device_blocks) * standing.block_size
        maybe_s = standing.host_latency_s + loaded * standing.host_token_s
        fewer = tokens - loaded
        rest_s = fewer * (standing.token_s + standing.attention_s * (cached + loaded + 0.5 * fewer))
        if maybe_s + rest_s < work_s:
            tokens, work_s, load_s = fewer, rest_s, maybe_s
    chunk_s = standing.chunk_s
    queue_s = account.backlog_s(now) + standing.others_prefill_s
    if step_s > chunk_s:
        queue_s += account.prefill_tokens / standing.chunk_tokens * (step_s - chunk_s)
        chunk_s = step_s
    queue_s += 0.5 * step_s
    compute_s = work_s + chunk_s * math.ceil(tokens / standing.chunk_tokens)
    work_s += standing.chunk_s * tokens / standing.chunk_tokens
    return Computing(queue_s, compute_s, load_s, work_s, tokens)
