"""The scheduler of continuous batching, pure: which tokens the next step computes.

Owns the waiting and running sequences and decides on their blocks. Each step gives every decoding sequence one token
and spends a budget of prompt tokens on the others, in order of arrival; a prompt longer than the budget is computed
in chunks. Who comes while the next block of his prompt is being computed for somebody else waits for that. When a
decoding sequence finds no block, the latest arrival gives its blocks back and waits to be computed again. Knows neither
bytes, time nor the store.
"""

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from cluster.engines.simulated.block_table import BlockTable
from cluster.engines.simulated.sequence import Phase, Sequence


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute `count` tokens of `sequence`, from the first not computed."""

    sequence: Sequence
    count: int


@dataclass(slots=True)
class Plan:
    """One step. `loads` were admitted and first get what the store has of their prompt; `filling` are the contents of
    blocks that will be whole after it.
    """

    chunks: list[Chunk] = field(default_factory=list)
    loads: list[Sequence] = field(default_factory=list)
    filling: set[bytes] = field(default_factory=set)
    preempted: int = 0

    def compute(self, sequence: Sequence, budget: int) -> int:
        """What a sequence needs computed, as far as a budget of prompt tokens goes; how much of that is left."""
        count = sequence.pending if sequence.pending == 1 else min(sequence.pending, budget)
        if count:
            self.chunks.append(Chunk(sequence, count))
            end = (sequence.computed + count) // sequence.block_size
            self.filling.update(sequence.hashes[sequence.filled : end])
        return budget - count if count > 1 else budget

    @property
    def prompt_tokens(self) -> int:
        """Tokens computed for prompts."""
        return sum(chunk.count for chunk in self.chunks if chunk.count > 1)

    @property
    def decoding(self) -> int:
        """Sequences that compute a single token."""
        return sum(chunk.count == 1 for chunk in self.chunks)


class Batch:
    """Invariant: `running` holds the LOADING and RUNNING sequences, at most `max_running`; `waiting` the others."""

    def __init__(self, table: BlockTable, max_running: int, max_batched_tokens: int) -> None:
        self._table = table
        self._max_running = max_running
        self._max_batched_tokens = max_batched_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running
        yield from self.waiting

    def add(self, sequence: Sequence) -> None:
        """A new sequence, last in line."""
        self.waiting.append(sequence)

    def plan(self, may_load: bool) -> Plan:
        """Decide on the next step. With `may_load`, newly admitted prompts are looked up in the store first."""
        plan = Plan()
        budget = self._continue(plan)
        if plan.preempted == 0:
            self._admit_waiting(plan, budget, may_load)
        return plan

    def loaded(self, sequence: Sequence, filled: int) -> None:
        """A LOADING sequence has its first `filled` blocks on the device."""
        sequence.reuse(filled)
        sequence.advance("loaded")

    def end(self, sequence: Sequence) -> None:
        """Take a sequence out, in whatever phase it is; its blocks are released."""
        if sequence.phase is Phase.ENDED:
            return
        (self.waiting if sequence.phase is Phase.WAITING else self.running).remove(sequence)
        self._drop_blocks(sequence)
        sequence.advance("end")

    def check(self) -> None:
        """Raise AssertionError unless phases and places agree and blocks cover tokens."""
        assert all(sequence.phase is Phase.WAITING and not sequence.blocks for sequence in self.waiting)
        assert all(sequence.phase in (Phase.LOADING, Phase.RUNNING) for sequence in self.running)
        assert all(sequence.computed <= len(sequence.blocks) * sequence.block_size for sequence in self.running)
        assert len(self.running) <= self._max_running
        self._table.check()

    def _continue(self, plan: Plan) -> int:
        budget = self._max_batched_tokens
        for sequence in tuple(self.running):
            if sequence.phase is not Phase.RUNNING or not self._grow(sequence, plan):
                continue
            budget = plan.compute(sequence, budget)
        return budget

    def _grow(self, sequence: Sequence, plan: Plan) -> bool:
        """Give a sequence the block its next token needs; False when it had to give up its own."""
        while len(sequence.blocks) < sequence.blocks_needed:
            if self._table.available:
                sequence.blocks.extend(self._table.allocate(1))
                continue
            victim = next(other for other in reversed(self.running) if other.phase is Phase.RUNNING)
            self._preempt(victim)
            plan.preempted += 1
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._drop_blocks(sequence)
        sequence.advance("preempt")
        self.waiting.appendleft(sequence)

    def _admit_waiting(self, plan: Plan, budget: int, may_load: bool) -> None:
        while self.waiting and len(self.running) < self._max_running and budget > 0:
            sequence = self.waiting[0]
            if not self._place(sequence, plan.filling):
                return
            self.running.append(self.waiting.popleft())
            if may_load and sequence.filled < loadable_blocks(sequence):
                sequence.advance("admit_loading")
                plan.loads.append(sequence)
                continue
            sequence.advance("admit")
            budget = plan.compute(sequence, budget)

    def _place(self, sequence: Sequence, filling: Container[bytes]) -> bool:
        """Find or allocate blocks for all tokens of a waiting sequence; False when there are too few, or when the next
        one it needs is being filled.
        """
        sequence.extend_hashes()
        reusable = sequence.hashes[: reusable_blocks(sequence)]
        cached = self._table.take_prefix(reusable)
        needed = sequence.blocks_needed - len(cached)
        is_filled_soon = len(cached) < len(reusable) and reusable[len(cached)] in filling
        if is_filled_soon or needed > self._table.available:
            self._table.release(cached)
            return False
        sequence.blocks.extend(cached)
        sequence.blocks.extend(self._table.allocate(needed))
        sequence.reuse(len(cached))
        return True

    def _drop_blocks(self, sequence: Sequence) -> None:
        self._table.release(sequence.blocks)
        del sequence.blocks[:]
        sequence.computed = sequence.filled = 0


def reusable_blocks(sequence: Sequence) -> int:
    """Whole blocks that need not be computed: none when log-probabilities of the whole prompt are wanted."""
    if sequence.job.sampling.prompt_logprobs is not None:
        return 0
    return len(sequence.tokens) // sequence.block_size


def loadable_blocks(sequence: Sequence) -> int:
    """Those of them that may come from the store."""
    limit_tokens = sequence.job.request.load_limit_tokens
    reusable = reusable_blocks(sequence)
    return reusable if limit_tokens is None else min(reusable, limit_tokens // sequence.block_size)
