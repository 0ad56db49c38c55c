"""What a request would cost on every replica of a pool, in seconds: arithmetic on columns.

The cost of a placement is the request's own time, and what it takes from others:

    time to first token                       queue + compute + load + first step
  + DECODING × expected output × time of a decode step with this request in the batch
  + DECODING × expected output × what others there add to a step: as much as it adds to theirs, if they are alike
  + seconds of prefill × CAPACITY             the replica computes for nobody else meanwhile
  + seconds of prefill × requests that decode there, when the decode replica computes the prompt; × STALLING where
    prefill replicas could

`docs/decisions/routing-cost.md` says why each term is there. All functions return columns, one entry for each replica.

A decision makes some eighty steps over short columns, so what a step costs counts: numpy takes a column of floats, or a
`number`, at once, but converts an integer or a Python float first, which takes longer than the arithmetic. So counts
are whole floats, which are exact up to 2 ** 53.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from routing.books import Column, Floats, number
from routing.pool import Pool

CAPACITY = 5.0
"""What a second of prefill costs requests that are still to come, in seconds: they wait, and lose cached blocks."""

DECODING = 0.5
"""What a second spread over an output weighs against one before its first token."""

STALLING = 4.0
"""What a second costs each request that decodes on a replica which others would have spared the prompt."""

ARRIVING = 0.25
"""How many requests are taken to come and wait for prefill on a decode replica that has none, in a cluster that could
prefill elsewhere. What is short next to a hand-off is computed there all the same."""


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


class Cached(NamedTuple):
    """Tokens of the prompt, without the block of its last one, which is never credited.

    `device` are there; `ready` will be when the queue in front is done; `host` with the node's store as well, None when
    no store has any.
    """

    device: Floats
    ready: Floats
    host: Floats | None


class Lacking(NamedTuple):
    """What a replica has to do for a prompt: `work_s` computes `tokens` in `chunks` steps, after `load_s`.

    `capacity_s` is the engine's time for it, whoever shares its steps.
    """

    tokens: Floats
    chunks: Floats
    work_s: Floats
    load_s: Floats
    capacity_s: Floats

    def part(self, which: slice) -> "Lacking":
        """Of some of the replicas."""
        tokens, chunks, work_s, load_s, capacity_s = self
        return Lacking(tokens[which], chunks[which], work_s[which], load_s[which], capacity_s[which])


class Decoding(NamedTuple):
    """The request in the batch. `batch` and `step_s` are without it; `cost_s` covers its tokens and others' steps.

    `blocks` will newly be held; `violation` is by what fraction the time of a step or the blocks would exceed their
    bounds, None when they do so nowhere.
    """

    batch: Floats
    step_s: Floats
    itl_s: Floats
    cost_s: Floats
    blocks: Floats
    violation: Floats | None


def lacking(pool: Pool, prompt_tokens: int, cached: Cached) -> Lacking:
    """The store's blocks are loaded where that is faster than computing them."""
    prompt, start = number(prompt_tokens), cached.ready
    load_s = np.zeros(len(pool))
    work_s = _work_s(pool, prompt, start)
    if cached.host is not None:
        from_store = np.maximum(cached.host, start)
        maybe_s = pool.host_latency_s + (from_store - start) * pool.host_token_s
        less_s = _work_s(pool, prompt, from_store)
        better = (from_store > start) & (maybe_s + less_s < work_s)
        start, load_s = np.where(better, from_store, start), np.where(better, maybe_s, load_s)
        work_s = np.where(better, less_s, work_s)
    tokens = prompt - start
    chunks = tokens / number(pool.chunk_tokens)
    return Lacking(tokens, np.ceil(chunks), work_s, load_s, work_s + pool.chunk_s * chunks)


def _work_s(pool: Pool, prompt: Floats, start: Floats) -> Floats:
    """Computing the prompt from token `start` on."""
    work_s: Floats = (prompt - start) * (pool.token_s + pool.attention_s * (0.5 * (start + prompt)))
    return work_s


def backlog_s(pool: Pool, books: Floats, now: float) -> Floats:
    """The time until a prompt's turn comes. `books` are the ledger's columns of this pool: see `Account.backlog_s`."""
    waited_s = np.maximum(number(now) - books[Column.FRONT_SINCE], 0.0)
    done_s = np.minimum(waited_s, books[Column.FRONT_S])
    left_s: Floats = np.maximum(books[Column.PREFILL_S] - done_s, 0.0) + pool.others_prefill_s
    return left_s


def decoding(pool: Pool, books: Floats, job: Job, device: Floats) -> Decoding:
    """Other gateways' requests are taken to be like this one. `device` tokens of the prompt are there already."""
    others = pool.others_requests
    batch = books[Column.REQUESTS] + others
    read = books[Column.CONTEXT_TOKENS] + others * number(job.context)
    batch_s = pool.step_request_s * batch + pool.step_context_s * read
    step_s = pool.step_s + batch_s
    itl_s = step_s + pool.step_request_s * number(job.outputs) + pool.step_context_s * number(job.outputs * job.context)
    cost_s = number(DECODING * job.output) * (itl_s + batch_s)
    if _most(batch) + job.outputs > pool.max_running:
        excess = np.maximum(batch + (job.outputs - pool.max_running), 0.0)
        cost_s += excess * (job.output / pool.max_running) * itl_s
    blocks = pool.by_size(lambda size: -(-job.prompt // size) + job.outputs * -(-job.output // size))
    blocks = blocks - device / pool.block_size
    held = (pool.others_blocks + books[Column.BLOCKS] + blocks) / pool.kv_blocks
    return Decoding(batch, step_s, itl_s, cost_s, blocks, _violation(held, itl_s, job.itl_target_s))


def _violation(held: Floats, itl_s: Floats, target_s: float) -> Floats | None:
    """`held` is a share of the device's blocks."""
    if target_s == inf and _most(held) <= 1.0:
        return None
    violation: Floats = np.maximum(held - 1.0, 0.0) + np.maximum(itl_s / target_s - 1.0, 0.0)
    return violation if violation.any() else None


def _most(column: Floats) -> float:
    """The largest entry, 0 if there is none; sooner than `max`."""
    return float(column[column.argmax()]) if len(column) else 0.0
