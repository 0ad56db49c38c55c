"""Faults a test or a chaos run injects. What is asked for is immutable; what is left of it is counted here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """Every default means: no fault.

    `die_after_tokens`: the engine dies once it has emitted that many more tokens. `hang`: it makes no further step.
    `slow_factor` multiplies step times. `fail_prefills`: the next N requests fail when they are submitted.
    `corrupt_commits`: a byte of the next N committed blocks flips after its checksum was taken. `withhold_block`: the
    block of this index in a prompt is never committed. `drop_loads`: nothing is loaded from the store.
    `verify` False: loaded blocks are believed without looking at their checksum.
    """

    die_after_tokens: int | None = None
    hang: bool = False
    slow_factor: float = 1.0
    fail_prefills: int = 0
    corrupt_commits: int = 0
    withhold_block: int | None = None
    drop_loads: bool = False
    verify: bool = True


class Injected:
    """The faults in force and how often each may still strike. Invariant: no count is below zero."""

    def __init__(self, faults: Faults) -> None:
        self.replace(faults)

    def replace(self, faults: Faults) -> None:
        """Put `faults` in force, with fresh counts, instead of those before."""
        self.current = faults
        self._tokens_left = faults.die_after_tokens
        self._prefills_left = faults.fail_prefills
        self._commits_left = faults.corrupt_commits

    def dies_emitting(self, tokens: int) -> bool:
        """Count emitted tokens; True when the engine has to die now."""
        if self._tokens_left is None:
            return False
        self._tokens_left = max(0, self._tokens_left - tokens)
        return self._tokens_left == 0

    def fails_prefill(self) -> bool:
        """True when this request has to fail."""
        strikes = self._prefills_left > 0
        self._prefills_left -= strikes
        return strikes

    def corrupts_commit(self) -> bool:
        """True when this block has to be corrupted after its checksum."""
        strikes = self._commits_left > 0
        self._commits_left -= strikes
        return strikes
