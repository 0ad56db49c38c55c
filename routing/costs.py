"""What a request would cost on every replica, in seconds: the formula for one of them, and one pass over all.

The cost of a placement is the request's own time, and what it takes from others:

    time to first token                       queue + compute + load + first step
  + DECODING × expected output × time of a decode step with this request in the batch
  + DECODING × expected output × what others there add to a step: as much as it adds to theirs, if they are alike
  + seconds of prefill × CAPACITY             the replica computes for nobody else meanwhile
  + seconds of prefill × requests that decode there, when the decode replica computes the prompt; × STALLING where
    prefill replicas could

`docs/decisions/routing-cost.md` says why each term is there.
"""

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing.books import Booked
from routing.compiled import compiled
from routing.pool import Member, Report
from routing.records import Column, Table, layout

CAPACITY = 5.0
"""What a second of prefill costs requests that are still to come, in seconds: they wait, and lose cached blocks."""

DECODING = 0.5
"""What a second spread over an output weighs against one before its first token."""

STALLING = 4.0
"""What a second costs each request that decodes on a replica which others would have spared the prompt."""

ARRIVING = 0.25
"""How many requests are taken to come and wait for prefill on a decode replica that has none, in a cluster that could
prefill elsewhere. What is short next to a hand-off is computed there all the same."""

SAME_VIOLATION = 0.01
"""Constraints that are violated by fractions that differ by less are violated equally."""


class Job(NamedTuple):
    """A request in numbers, at a moment. `output` is expected for each of `outputs`, at most `max_tokens`; `context`
    tokens are read by one decode step of one output, on average over its life.

    `itl_target_s` is infinite when none is set; `share` is how many requests others have for each of this gateway's.
    """

    prompt: int
    output: int
    outputs: int
    context: int
    max_tokens: int
    may_disaggregate: bool
    itl_target_s: float
    share: float
    now: float


class Found(NamedTuple):
    """Tokens of the prompt that a replica can use, without the block of its last one, which is never credited.

    `device` are there, `promised` will be when the queue in front is done, `coming` the same if they go to its node's
    store as well, `host` are there or in its node's store as far as this replica told, `node` in that store, `remote`
    in that of another node, the one with the code `remote_node`, which is `far` in another zone. What is 0 may be
    unknown. Computing cannot begin sooner than in `there_s` seconds: only then are all of them where they are said to
    be. An `excluded` replica is not to be asked.
    """

    device: int
    promised: int
    coming: int
    host: int
    node: int
    remote: int
    remote_node: int
    far: bool
    there_s: float
    excluded: bool


@dataclass(slots=True)
class Price:
    """What a replica would cost, `half_s` as one half of a pair, `alone_s` as a decode replica that computes the prompt
    itself: infinite where it is not fit for that.

    Where it computes the prompt: `queue_s` until it begins, `host_s` for blocks loaded before, `compute_s`, for
    `computed_tokens`; `capacity_s` is the engine's time for it, whoever shares its steps. Of the blocks that are loaded
    those from token `remote_start` to `remote_end` come from the store of `remote_node`, and computing them would take
    `worth_s`; it `declines` those of its own node's store when computing is faster. Where it decodes: `wait_s` is
    the rest of the step that is running; after a hand-off `fetch_s` loads the whole blocks that are not on the device,
    of which `far_tokens` are not even on its node, and `first_step_s` follows. `batch` requests are there already;
    `blocks` will newly be held, `held` in all for each one that there is; `violation` is by what fraction the time of a
    step or the blocks would exceed their bounds. `routing.room` says what `seat_s`, `room_s` and `crowd` are.
    """

    half_s: float
    alone_s: float
    queue_s: float
    host_s: float
    compute_s: float
    computed_tokens: int
    capacity_s: float
    remote_start: int
    remote_end: int
    remote_node: int
    worth_s: float
    declines: bool
    wait_s: float
    fetch_s: float
    far_tokens: int
    first_step_s: float
    itl_s: float
    batch: float
    blocks: int
    held: float
    violation: float
    seat_s: float
    room_s: float
    crowd: float
    turn: int


_PRICE = layout(Price)


class Start(NamedTuple):
    """From where on a prompt is computed: token `at`, after `load_s`, in `work_s`. Blocks come from another node if it
    is `remote`.
    """

    at: int
    load_s: float
    work_s: float
    remote: bool


class Lacking(NamedTuple):
    """What a replica has to do for a prompt: `work_s` computes `tokens` in `chunks` steps, after `load_s`."""

    tokens: int
    chunks: int
    work_s: float
    load_s: float
    capacity_s: float
    remote_start: int
    remote_end: int
    worth_s: float
    declines: bool


class Decoding(NamedTuple):
    """The request in the batch. `batch` and `step_s` are without it; `cost_s` covers its tokens and others' steps."""

    batch: float
    step_s: float
    itl_s: float
    cost_s: float


@compiled
def price_all(
    members: Table[Member],
    reports: Table[Report],
    rows: Column,
    books: Table[Booked],
    found: Table[Found],
    job: Job,
) -> Table[Price]:
    """The price of every replica. Of decode replicas those are fit that violate constraints least."""
    prices: Table[Price] = np.zeros(len(members), _PRICE)
    offered = _offered(members, found, job)
    least = inf
    for place in range(len(members)):
        member, price, booked = members[place], prices[place], books[rows[place]]
        price.turn = booked.turn
        price.half_s = price.alone_s = price.violation = inf
        price.remote_node = found[place].remote_node
        if not _fits(member, found[place], job):
            continue
        if member.decodes:
            handed_over = offered[member.fingerprint] and member.block_size < job.prompt
            _price_seat(member, reports[place], booked, found[place], job, handed_over, price)
            least = min(least, price.violation)
        else:
            _price_source(member, reports[place], booked, found[place], job, price)
    for place in range(len(members)):
        if members[place].decodes and prices[place].violation > least + SAME_VIOLATION:
            prices[place].half_s = prices[place].alone_s = inf
    return prices


@compiled
def _offered(members: Table[Member], found: Table[Found], job: Job) -> NDArray[np.bool_]:
    """By fingerprint: whether a fit prefill replica has it. There are not more fingerprints than replicas."""
    offered = np.zeros(len(members), dtype=np.bool_)
    for place in range(len(members)):
        member = members[place]
        if not member.decodes and _fits(member, found[place], job):
            offered[member.fingerprint] = True
    return offered


@compiled
def _fits(member: Member, found: Found, job: Job) -> bool:
    """Whether the replica may be asked and has room: see `routing.fit`."""
    if member.decodes:
        return not found.excluded and job.prompt + job.max_tokens <= member.max_model_len
    return job.may_disaggregate and not found.excluded and job.prompt + 1 <= member.max_model_len


@compiled
def _price_source(member: Member, report: Report, booked: Booked, found: Found, job: Job, price: Price) -> None:
    """A prefill replica, which computes the prompt and does nothing else, but for what it still decodes since its role
    was another.
    """
    lacks = _lacking(member, found, job.prompt)
    _write_prompt(price, lacks, _backlog_s(member, report, booked, job), member.chunk_s)
    stalled = STALLING * booked.decoding
    price.half_s = price.queue_s + price.compute_s + price.host_s + (CAPACITY + stalled) * lacks.capacity_s


@compiled
def _price_seat(
    member: Member, report: Report, booked: Booked, found: Found, job: Job, handed_over: bool, price: Price
) -> None:
    """A decode replica. Each step that computes a chunk is a decode step as well.

    Where prefill replicas could compute the prompt (`handed_over`), its time is wanted even while nothing decodes.
    """
    decoding = _decoding(member, report, booked, job)
    price.batch = decoding.batch
    _constrain(member, report, booked, found, job, decoding.itl_s, price)
    running_s = decoding.step_s if decoding.batch > 0 else 0.0
    chunk_s = max(running_s, member.chunk_s)
    queued_chunks = booked.prefill_tokens / member.chunk_tokens
    queue_s = max(found.there_s, _backlog_s(member, report, booked, job) + queued_chunks * (chunk_s - member.chunk_s))
    lacks = _lacking(member, found, job.prompt)
    _write_prompt(price, lacks, queue_s, chunk_s)
    price.wait_s = 0.5 * running_s
    stalled = max(STALLING * decoding.batch, ARRIVING) if handed_over else decoding.batch
    first_s = price.queue_s + price.wait_s + price.compute_s + price.host_s
    price.alone_s = first_s + (CAPACITY + stalled) * lacks.capacity_s + decoding.cost_s
    if handed_over:
        rest_s = _take_over(member, found, job, decoding.itl_s, price)
        price.half_s = price.fetch_s + price.first_step_s + rest_s * decoding.batch + decoding.cost_s


@compiled
def _write_prompt(price: Price, lacks: Lacking, queue_s: float, chunk_s: float) -> None:
    price.queue_s = queue_s
    price.host_s = lacks.load_s
    price.compute_s = lacks.work_s + chunk_s * lacks.chunks
    price.computed_tokens = lacks.tokens
    price.capacity_s = lacks.capacity_s
    price.remote_start, price.remote_end = lacks.remote_start, lacks.remote_end
    price.worth_s, price.declines = lacks.worth_s, lacks.declines


@compiled
def _take_over(member: Member, found: Found, job: Job, itl_s: float, price: Price) -> float:
    """What follows a hand-off: the whole blocks are fetched, and the rest of the prompt is computed, in this time."""
    rest = (job.prompt - 1) % member.block_size + 1
    whole = job.prompt - rest
    fetched = whole - found.device
    price.fetch_s = member.host_latency_s + member.host_token_s * fetched if fetched > 0 else 0.0
    price.far_tokens = whole - max(found.device, found.node)
    rest_s = rest * (member.token_s + member.attention_s * job.prompt)
    price.first_step_s = price.wait_s + itl_s + rest_s
    return rest_s


@compiled
def _lacking(member: Member, found: Found, prompt: int) -> Lacking:
    """Blocks of the node's store, or of another's as well, are loaded where that is faster than computing them."""
    here = max(found.device, found.promised)
    start = _start(member, found, prompt, here)
    chunks = (prompt - start.at) / member.chunk_tokens
    remote_start, remote_end, worth_s = 0, 0, 0.0
    if start.remote:
        remote_start, remote_end = max(here, found.host), start.at
        fewer = (remote_end - remote_start) / member.chunk_tokens
        worth_s = _work_s(member, remote_start, prompt) - start.work_s + member.chunk_s * fewer
    return Lacking(
        prompt - start.at,
        ceil(chunks),
        start.work_s,
        start.load_s,
        start.work_s + member.chunk_s * chunks,
        remote_start,
        remote_end,
        worth_s,
        start.at == here and found.host > here,
    )


@compiled
def _start(member: Member, found: Found, prompt: int, here: int) -> Start:
    """Where computing begins so that it ends soonest. What comes from another node is loaded from this one's store."""
    best = Start(here, 0.0, _work_s(member, here, prompt), False)
    if found.host > here:
        load_s = member.host_latency_s + (found.host - here) * member.host_token_s
        work_s = _work_s(member, found.host, prompt)
        if load_s + work_s < best.load_s + best.work_s:
            best = Start(found.host, load_s, work_s, False)
    stored = max(here, found.host)
    if found.remote > stored:
        fetch_s = member.remote_latency_s + (found.remote - stored) * member.remote_token_s
        fetch_s *= member.far_factor if found.far else 1.0
        load_s = fetch_s + member.host_latency_s + (found.remote - here) * member.host_token_s
        work_s = _work_s(member, found.remote, prompt)
        if load_s + work_s < best.load_s + best.work_s:
            best = Start(found.remote, load_s, work_s, True)
    return best


@compiled
def _work_s(member: Member, start: int, prompt: int) -> float:
    """Computing the prompt from token `start` on."""
    return (prompt - start) * (member.token_s + member.attention_s * (0.5 * (start + prompt)))


@compiled
def _backlog_s(member: Member, report: Report, booked: Booked, job: Job) -> float:
    """The time until a prompt's turn comes, others' prompts included: see `Account.backlog_s`."""
    done_s = min(max(job.now - booked.front_since, 0.0), booked.front_s)
    others_s = report.prefill_tokens * (member.token_s + member.chunk_s / member.chunk_tokens)
    since_s = max(booked.given_prefill_s - report.given_prefill_s, 0.0)
    return max(booked.prefill_s - done_s, 0.0) + others_s + job.share * since_s


@compiled
def _decoding(member: Member, report: Report, booked: Booked, job: Job) -> Decoding:
    """Other gateways' requests are taken to be like this one."""
    others = report.requests + job.share * max(booked.given_requests - report.given_requests, 0)
    batch = booked.requests + others
    batch_s = member.step_request_s * batch + member.step_context_s * (booked.context_tokens + others * job.context)
    step_s = member.step_s + batch_s
    itl_s = step_s + job.outputs * (member.step_request_s + member.step_context_s * job.context)
    waiting = max(batch + job.outputs - member.max_running, 0.0)
    cost_s = job.output * (DECODING * (itl_s + batch_s) + waiting / member.max_running * itl_s)
    return Decoding(batch, step_s, itl_s, cost_s)


@compiled
def _constrain(
    member: Member, report: Report, booked: Booked, found: Found, job: Job, itl_s: float, price: Price
) -> None:
    """The device's blocks, and the time of a step, against their bounds."""
    size = member.block_size
    price.blocks = -(-job.prompt // size) + job.outputs * -(-job.output // size) - found.device // size
    price.held = (report.blocks + booked.blocks + price.blocks) / member.kv_blocks
    price.itl_s = itl_s
    price.violation = max(price.held - 1.0, 0.0) + max(itl_s / job.itl_target_s - 1.0, 0.0)
