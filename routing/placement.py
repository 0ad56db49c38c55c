"""An option as a decision: what it predicts, what it reserves, and why it was chosen."""

from routing.block_keys import PromptKeys
from routing.candidates import Option
from routing.costs import Job
from routing.pool import Pool
from routing.router import Coming, Decision, Fetch, Predicted, Work


def prefill_id(option: Option, pool: Pool) -> str | None:
    """The prefill replica of a pair; None where the decode replica computes the prompt itself."""
    return None if option.computing == option.decoding else pool.ids[option.computing]


def decision(
    option: Option, next_best: Option | None, pool: Pool, job: Job, keys: PromptKeys, coming: Coming | None
) -> Decision:
    """For the one who asked."""
    decode, prefill, predicted = pool.ids[option.decoding], prefill_id(option, pool), predict(option, job)
    more_s = None if next_best is None else next_best.cost_s - option.cost_s
    return Decision(
        decode,
        prefill,
        _why(decode, prefill, predicted, fetch_of(option, pool), coming, option.cost_s, more_s),
        predicted,
        _work(option, pool, job, keys),
        fetch_of(option, pool),
        load_limit_tokens=0 if option.declines else None,
        coming=coming,
    )


def fetch_of(option: Option, pool: Pool) -> Fetch | None:
    """What comes from another node's store first."""
    if option.remote_start >= option.remote_end:
        return None
    return Fetch(pool.nodes[option.remote_node], option.remote_start, option.remote_end, option.worth_s)


def predict(option: Option, job: Job) -> Predicted:
    """What is expected of it."""
    return Predicted(
        queue_s=option.queue_s,
        compute_s=option.compute_s,
        load_s=option.load_s,
        first_step_s=option.first_step_s,
        itl_s=option.itl_s,
        computed_tokens=option.computed_tokens,
        cached_tokens=job.prompt - option.computed_tokens,
        room_s=option.room_s,
        crowd=option.crowd,
    )


def _work(option: Option, pool: Pool, job: Job, keys: PromptKeys) -> Work:
    """For the ledger."""
    return Work(
        prefill_tokens=option.computed_tokens,
        prefill_s=option.capacity_s,
        decode_tokens=job.output * job.outputs,
        context_tokens=job.context * job.outputs,
        blocks=option.blocks,
        prefill_keys=keys.at(pool.sizes[option.computing]),
        decode_keys=keys.at(pool.sizes[option.decoding]),
    )


def _why(
    decode: str,
    prefill: str | None,
    predicted: Predicted,
    fetch: Fetch | None,
    coming: Coming | None,
    cost_s: float,
    more_s: float | None,
) -> str:
    """For people; `more_s` is what the next best would have cost more."""
    where = f"{decode} computes the prompt itself" if prefill is None else f"prefill on {prefill}, decode on {decode}"
    if fetch is not None:
        where += f", after tokens {fetch.start_tokens} to {fetch.end_tokens} have come from node {fetch.node_id}"
    if coming is not None:
        where += f", once {coming.replica_id} has computed {len(coming.keys)} blocks of it"
    more = "" if more_s is None else f", {more_s:.3f} s less than the next"
    return (
        f"{where}: first token in {predicted.ttft_s:.3f} s ({predicted.computed_tokens} tokens to compute after "
        f"{predicted.queue_s:.3f} s of waiting), the cheapest at {cost_s:.3f} s{more}"
    )
