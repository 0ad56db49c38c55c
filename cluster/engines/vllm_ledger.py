"""The legs an engine is working on, and what they add up to. Pure bookkeeping, by the owner of the engine.

Invariant: a leg is here from the moment it is handed to vLLM until its stream ends, however it ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvtransfer.connector.plan import LoadVerdict


@dataclass(slots=True)
class Leg:
    """One stream. `verdicts` are those of its loads (several with n > 1, or after a preemption)."""

    prompt_tokens: int
    expected_blocks: int
    missing_reason: str
    started_s: float
    first_token_s: float | None = None
    verdicts: list[LoadVerdict] = field(default_factory=list)

    def cached_tokens(self, counted_tokens: int, block_size: int) -> int:
        """Prompt tokens that were not computed here, where vLLM counts `counted_tokens`.

        vLLM counts a load whole even if some of it failed, and counts the last token of a wholly cached prompt, which
        it computes again to have something to sample from.
        """
        return min(self._covered_tokens(counted_tokens, block_size), self.prompt_tokens - 1)

    def _covered_tokens(self, counted_tokens: int, block_size: int) -> int:
        overcounted = self.verdicts[0].overcounted_blocks if self.verdicts else 0
        return max(0, counted_tokens - overcounted * block_size)

    def loaded_blocks(self) -> int:
        return sum(verdict.loaded_blocks for verdict in self.verdicts)

    def recomputed(self, counted_tokens: int, block_size: int) -> "Recomputed":
        """Blocks that were expected here, or being loaded, and were computed all the same."""
        missing = max(0, self.expected_blocks - self._covered_tokens(counted_tokens, block_size) // block_size)
        lost = sum(verdict.recomputed_blocks for verdict in self.verdicts)
        blocks = max(missing, lost)
        if not blocks:
            return Recomputed(0, "")
        reason = next((verdict.reason for verdict in self.verdicts if verdict.reason), self.missing_reason)
        return Recomputed(blocks, reason)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """How many blocks, and why."""

    blocks: int
    reason: str


class Ledger:
    """All legs of one engine."""

    def __init__(self) -> None:
        self._legs: dict[str, Leg] = {}
        self._recomputed: dict[str, int] = {}
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._legs)

    @property
    def queued_prefill_tokens(self) -> int:
        """Prompt tokens of the legs that have no token yet."""
        return sum(leg.prompt_tokens for leg in self._legs.values() if leg.first_token_s is None)

    def open(self, name: str, leg: Leg) -> None:
        self._legs[name] = leg

    def close(self, name: str) -> None:
        self._legs.pop(name, None)

    def judge(self, name: str, verdicts: Iterable[LoadVerdict]) -> None:
        """Loads of a leg have ended; it may be gone by now."""
        leg = self._legs.get(name)
        if leg is not None:
            leg.verdicts.extend(verdicts)

    def count_recomputed(self, recomputed: Recomputed) -> None:
        if recomputed.blocks:
            self._recomputed[recomputed.reason] = self._recomputed.get(recomputed.reason, 0) + recomputed.blocks

    def counters(self) -> dict[str, float]:
        """Totals of this engine's life."""
        by_reason = {f"recomputed_blocks_{reason}": float(blocks) for reason, blocks in self._recomputed.items()}
        return {"tokens": float(self.tokens), **by_reason}
