"""One placement out of the columns: what it predicts, what it reserves, and why it was chosen."""

from typing import NamedTuple

from routing.block_keys import PromptKeys
from routing.candidates import Found, Option
from routing.costs import Job
from routing.router import Predicted, Work


class Placement(NamedTuple):
    """Without `prefill` the decode replica computes the prompt. Times in seconds: see `Option`."""

    decode: str
    prefill: str | None
    cost_s: float
    queue_s: float
    compute_s: float
    load_s: float
    first_step_s: float
    itl_s: float
    computed_tokens: int
    capacity_s: float
    blocks: int
    prefill_block_size: int
    decode_block_size: int

    @classmethod
    def of(cls, option: Option, found: Found) -> "Placement":
        """One of the options that were found."""
        sources, seats, seat = found.sources, found.seats, option.seat
        prefill: str | None = None
        lacks, pool, at = seats.lacking, seats.pool, seat
        if option.source is not None:
            lacks, pool, at = sources.lacking, sources.pool, option.source
            prefill = pool.ids[at]
        return cls(
            decode=seats.pool.ids[seat],
            prefill=prefill,
            cost_s=option.cost_s,
            queue_s=option.queue_s,
            compute_s=option.compute_s,
            load_s=option.load_s,
            first_step_s=option.first_step_s,
            itl_s=float(seats.decoding.itl_s[seat]),
            computed_tokens=int(lacks.tokens[at]),
            capacity_s=float(lacks.capacity_s[at]),
            blocks=int(seats.decoding.blocks[seat]),
            prefill_block_size=int(pool.block_size[at]),
            decode_block_size=int(seats.pool.block_size[seat]),
        )

    def predicted(self, prompt_tokens: int) -> Predicted:
        """For the one who asked."""
        return Predicted(
            queue_s=self.queue_s,
            compute_s=self.compute_s,
            load_s=self.load_s,
            first_step_s=self.first_step_s,
            itl_s=self.itl_s,
            computed_tokens=self.computed_tokens,
            cached_tokens=prompt_tokens - self.computed_tokens,
        )

    def work(self, job: Job, keys: PromptKeys) -> Work:
        """For the ledger."""
        return Work(
            prefill_tokens=self.computed_tokens,
            prefill_s=self.capacity_s,
            decode_tokens=job.output * job.outputs,
            context_tokens=job.context * job.outputs,
            blocks=self.blocks,
            prefill_keys=keys.at(self.prefill_block_size),
            decode_keys=keys.at(self.decode_block_size),
        )

    def why(self, more_s: float | None) -> str:
        """For people; `more_s` is what the next best would have cost more."""
        where = (
            f"{self.decode} computes the prompt itself"
            if self.prefill is None
            else f"prefill on {self.prefill}, decode on {self.decode}"
        )
        first_s = self.queue_s + self.compute_s + self.load_s + self.first_step_s
        more = "" if more_s is None else f", {more_s:.3f} s less than the next"
        return (
            f"{where}: first token in {first_s:.3f} s ({self.computed_tokens} tokens to compute after "
            f"{self.queue_s:.3f} s of waiting), the cheapest at {self.cost_s:.3f} s{more}"
        )
