"""For how many replicas each role has work: from what workers report, with the router's own rates.

Prefill. Work arrives as fast as it is done and as what waits grows: an engine that has prompts to compute does one
second of it in a second. That many replicas are needed at `BUSY` of their time, and more to be done with what waits
within the target for the first token.

Decode. What of a step is not its fixed part is work; a step that lasts as long as the target allows has the most of it.
The share of time that goes into it tells how fast it arrives, whatever the batch is that this leads to now:
`work = Σ (1 - fixed / step)`. Where replicas are behind, batches are larger than that, and it is what is there that has
to be brought below the target. Blocks and places in batches have their bounds as well; the largest need counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite

from cluster.pools.member import Member, of_role
from cluster.pools.settings import LendingSettings
from cluster.pools.split import Split
from routing.fleet import Role
from routing.rates import Metric, Rates

BUSY = 0.8
"""Of a prefill replica's time. Prompts that come at random wait too long for one that is busier."""

KEPT = 0.85
"""How much of a target is used: what comes next needs the rest."""

FULL = 0.9
"""How much of a device's blocks decode replicas should hold."""

LEAST_ROOM = 1.5
"""A target of less than this many times an empty step cannot be kept; no number of replicas would."""


@dataclass(frozen=True, slots=True)
class Needs:
    """In replicas. `bound` names what makes decode need as many."""

    prefill: float = 0.0
    decode: float = 0.0
    bound: str = "ITL"

    def shortage(self, split: Split) -> float:
        """The worse role's need for each replica it has; above 1 a target will be missed."""
        return max(self.share(Role.PREFILL, split), self.share(Role.DECODE, split))

    def share(self, role: Role, split: Split) -> float:
        """A role's need for each replica it has."""
        need, replicas = (self.prefill, split.prefill) if role is Role.PREFILL else (self.decode, split.decode)
        return need / replicas if replicas else (inf if need else 0.0)


class NeedsEstimate:
    """Owns the averages."""

    def __init__(self, settings: LendingSettings, rates: Rates) -> None:
        self._settings = settings
        self._rates = rates
        self._at: float | None = None
        self._backlog_s = 0.0
        self._arriving = _Average(settings.smoothing_s)
        self._decoding = _Average(settings.smoothing_s)
        self._filling = _Average(settings.smoothing_s)

    def observe(self, members: Sequence[Member], now: float) -> Needs:
        """What is needed at `now`, later than before."""
        elapsed_s = now - self._at if self._at is not None else 0.0
        self._at = now
        decode, bound = self._decode(members, elapsed_s)
        return Needs(self._prefill(members, elapsed_s), decode, bound)

    def _prefill(self, members: Sequence[Member], elapsed_s: float) -> float:
        backlog_s = sum(self._waiting_s(member) for member in members)
        busy = sum(bool(member.replica.load.queued_prefill_tokens) for member in of_role(members, Role.PREFILL))
        if elapsed_s > 0:
            self._arriving.add(busy + (backlog_s - self._backlog_s) / elapsed_s, elapsed_s)
        self._backlog_s = backlog_s
        arriving = max(0.0, self._arriving.value)
        return max(arriving / BUSY, backlog_s / (KEPT * self._settings.ttft_target_s))

    def _decode(self, members: Sequence[Member], elapsed_s: float) -> tuple[float, str]:
        seats = of_role(members, Role.DECODE)
        fixed_s = [self._fixed_s(member) for member in seats]
        steps_s = [self._step_s(member) for member in seats]
        work = sum(1 - fixed / step for fixed, step in zip(fixed_s, steps_s, strict=True) if step > 0)
        self._decoding.add(work, elapsed_s)
        self._filling.add(sum(self._full(member) for member in seats), elapsed_s)
        needs = [(self._filling.value, "KV blocks")]
        target_s, empty_s = KEPT * self._settings.itl_target_s, max(fixed_s, default=0.0)
        if isfinite(target_s) and empty_s and target_s > LEAST_ROOM * empty_s:
            behind = sum(step - fixed for fixed, step in zip(fixed_s, steps_s, strict=True)) / (target_s - empty_s)
            needs.append((max(self._decoding.value * target_s / (target_s - empty_s), behind), "ITL"))
        return max(needs)

    def _waiting_s(self, member: Member) -> float:
        """An engine's time for the prompts that wait or are being computed."""
        profile = self._rates.profile
        token_s = profile.prefill_token_s + profile.prefill_step_s / profile.chunk_tokens
        return member.replica.load.queued_prefill_tokens * token_s * self._factor(member, Metric.PREFILL)

    def _fixed_s(self, member: Member) -> float:
        return self._rates.profile.decode_step_s * self._factor(member, Metric.STEP)

    def _step_s(self, member: Member) -> float:
        replica = member.replica
        context_tokens = replica.load.kv_usage * replica.kv_blocks * replica.block_size_tokens
        step_s = self._rates.profile.step_s(replica.load.running, context_tokens)
        return step_s * self._factor(member, Metric.STEP)

    def _full(self, member: Member) -> float:
        """How much of it is taken, of blocks or of places in its batch; more than 1 when requests wait for either."""
        load = member.replica.load
        wanted = (load.running + load.waiting) / max(1, load.running)
        return max(load.kv_usage / FULL, load.running / self._rates.profile.max_running) * wanted

    def _factor(self, member: Member, metric: Metric) -> float:
        return self._rates.factor(member.replica.replica_id, member.role, metric)


class _Average:
    """A mean that forgets what is older than `over_s`, the first value first."""

    def __init__(self, over_s: float) -> None:
        self.value = 0.0
        self._over_s = over_s

    def add(self, value: float, elapsed_s: float) -> None:
        """`value` held for the last `elapsed_s`."""
        self.value += (1 - exp(-elapsed_s / self._over_s)) * (value - self.value)
