"""What the pool controller keeps, and how much it hesitates. Values only."""

from dataclasses import dataclass
from math import inf
from typing import Self

from configs.schema import PoolsConfig
from routing.fleet import Role


@dataclass(frozen=True, slots=True)
class LendingSettings:
    """Targets and floors are a deployment's; the rest says when a change is worth it.

    Needs are averaged over `smoothing_s`. A role that was short for `sustain_s` is helped if that lowers the worse
    role's shortage by the share `gain`. Changes that follow within `cooldown_s` go the same way; after it comes a turn.
    `turns` turns may follow each other so, and one more becomes allowed every `turn_every_s`.
    """

    ttft_target_s: float = 2.0
    itl_target_s: float = inf
    prefill_floor: int = 1
    decode_floor: int = 1
    smoothing_s: float = 2.0
    sustain_s: float = 1.0
    gain: float = 0.25
    cooldown_s: float = 10.0
    turns: int = 3
    turn_every_s: float = 60.0

    @classmethod
    def of(cls, pools: PoolsConfig, itl_target_s: float | None) -> Self:
        """As a deployment has them."""
        return cls(
            ttft_target_s=pools.ttft_target_s,
            itl_target_s=inf if itl_target_s is None else itl_target_s,
            prefill_floor=pools.prefill_floor,
            decode_floor=pools.decode_floor,
            cooldown_s=pools.cooldown_s,
            turns=pools.turns,
            turn_every_s=pools.turn_every_s,
        )

    def floor(self, role: Role) -> int:
        """How many replicas always have the role, as long as there are enough."""
        return self.prefill_floor if role is Role.PREFILL else self.decode_floor


def lends(pools: PoolsConfig, itl_target_s: float | None) -> bool:
    """Whether replicas are lent but by hand: not where nobody says what is to be kept."""
    return pools.lending == "auto" and itl_target_s is not None
