"""Lends replicas between the roles: who changes sides now, and why. Pure.

A change needs a role that is short, for a while, and a ratio at which the worse role is clearly better off. More may
follow the same way; so that noise moves nobody to and fro, a turn to the other way comes after a pause only, and the
number of turns in any stretch of time is bounded (`Allowance`). Running work finishes where it is: whoever has least of
it goes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.pools.allowance import Allowance
from cluster.pools.best_split import best_split
from cluster.pools.member import Member, of_role
from cluster.pools.needs import Needs, NeedsEstimate
from cluster.pools.settings import LendingSettings
from cluster.pools.split import Split
from routing.fleet import Role
from routing.rates import Rates

OVERLOADED_GAIN = 0.5
"""What a change must bring that leaves both roles short: queues that only grow say little about what is needed."""

FOLLOWING_GAIN = 0.1
"""What is enough the same way shortly after: traffic has turned, and what is left of the old goes away by itself."""

OTHER = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}


@dataclass(frozen=True, slots=True)
class Change:
    """A replica is to have another role. `why` is for people."""

    replica_id: str
    role: Role
    why: str


class PoolController:
    """Owns what it has seen of the needs, and when it last changed something."""

    def __init__(self, settings: LendingSettings, rates: Rates) -> None:
        self.needs = Needs()
        self._settings = settings
        self._estimate = NeedsEstimate(settings, rates)
        self._allowance = Allowance(settings.turns, settings.turn_every_s)
        self._short_since: float | None = None
        self._way = Role.PREFILL
        self._changed_at = float("-inf")

    def decide(self, members: Sequence[Member], now: float) -> list[Change]:
        """The changes to make at `now`: none, or replicas that all go the same way."""
        self.needs = self._estimate.observe(members, now)
        split = split_of(members)
        best = best_split(self.needs, split, self._least(members))
        way = Role.PREFILL if best.prefill > split.prefill else Role.DECODE
        if not self._is_worth(split, best, way, now):
            self._short_since = None
            return []
        if self._short_since is None:
            self._short_since = now
        if now < self._short_since + self._settings.sustain_s or not self._may_go(way, now):
            return []
        return self._change(members, split, best, way, now)

    def _is_turn(self, way: Role, now: float) -> bool:
        return way is not self._way or now >= self._changed_at + self._settings.cooldown_s

    def _may_go(self, way: Role, now: float) -> bool:
        if not self._is_turn(way, now):
            return True
        return now >= self._changed_at + self._settings.cooldown_s and self._allowance.allows(now)

    def _is_worth(self, split: Split, best: Split, way: Role, now: float) -> bool:
        short, then = map(self.needs.shortage, (split, best))
        gain = self._settings.gain
        if not self._is_turn(way, now):
            gain = FOLLOWING_GAIN
        elif self.needs.share(OTHER[way], best) > 1:
            gain = OVERLOADED_GAIN
        return short > 1 and then <= (1 - gain) * short

    def _least(self, members: Sequence[Member]) -> Split:
        """Of each role: the floor, and those that are pinned to it."""

        def least(role: Role) -> int:
            return max(self._settings.floor(role), sum(member.pinned for member in of_role(members, role)))

        return Split(least(Role.PREFILL), least(Role.DECODE))

    def _change(self, members: Sequence[Member], split: Split, best: Split, way: Role, now: float) -> list[Change]:
        if self._is_turn(way, now):
            self._allowance.use(now)
        self._short_since, self._way, self._changed_at = None, way, now
        chosen = whom(members, way)[: abs(best.prefill - split.prefill)]
        return [Change(member.replica.replica_id, way, self._why(split, best)) for member in chosen]

    def _why(self, split: Split, best: Split) -> str:
        needs = self.needs
        return (
            f"{split} to {best}: prefill has work for {needs.prefill:.1f} replicas, decode for {needs.decode:.1f} "
            f"({needs.bound})"
        )


def split_of(members: Sequence[Member]) -> Split:
    """How many there are of each."""
    return Split(len(of_role(members, Role.PREFILL)), len(of_role(members, Role.DECODE)))


def whom(members: Sequence[Member], role: Role) -> list[Member]:
    """Who could take over `role`, the first to go first: those that come home, then those with least to finish."""
    able = [member for member in of_role(members, OTHER[role]) if not member.pinned]
    return sorted(able, key=lambda member: (not member.is_lent, _unfinished(member), member.replica.replica_id))


def _unfinished(member: Member) -> float:
    load = member.replica.load
    return load.queued_prefill_tokens if member.role is Role.PREFILL else load.running + load.held
