"""How many replicas a workload keeps busy, without simulating it: where a search begins, and what sizing rests on.

    prefill    requests/s · seconds of prefill of a mean prompt, less what a cache saves
    decode     requests/s · output tokens / tokens a second of a replica that just keeps the ITL target

Both are averages: queues, bursts and hand-offs are the simulator's.
"""

import math
from dataclasses import dataclass

from cluster.planning.outcome import Slo
from cluster.planning.planner.topology import Topology
from cluster.planning.trace import TraceStatistics
from routing.profile import Profile

CACHED = 0.7
"""The share of what an unlimited cache would save that those of a cluster do."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Replicas that are busy all the time. `batch` is what a decode replica holds at the ITL target."""

    prefill: float
    decode: float
    batch: int

    def divide(self, replicas: int) -> Topology:
        """So many replicas in proportion, at least one of each kind."""
        share = self.prefill / ((self.prefill + self.decode) or 1.0)
        return Topology(prefill := min(max(round(replicas * share), 1), replicas - 1), replicas - prefill)


def demand_of(told: TraceStatistics, rates: Profile, kv_tokens: int, slo: Slo, load: float = 1.0) -> Demand:
    """The demand of a trace at a load."""
    per_s = load * told.requests / (told.duration_s or 1.0)
    computed = told.mean_prompt_tokens * (1 - CACHED * told.reuse)
    context = told.mean_prompt_tokens + told.mean_output_tokens / 2
    batch = batch_at(rates, context, kv_tokens, slo.itl_s)
    tokens_per_s = batch / rates.step_s(batch, batch * context)
    prefill_s = rates.prefill_s(math.ceil(computed), round(told.mean_prompt_tokens - computed))
    return Demand(per_s * prefill_s, per_s * told.mean_output_tokens / tokens_per_s, batch)


def batch_at(rates: Profile, context_tokens: float, kv_tokens: int, itl_s: float) -> int:
    """The most requests of that context which a replica holds and decodes inside the target; at least one."""
    each_s = rates.decode_request_s + rates.decode_context_token_s * context_tokens
    in_time = (itl_s - rates.decode_step_s) / each_s if each_s > 0 else math.inf
    return max(1, int(min(in_time, kv_tokens / context_tokens, rates.max_running)))
