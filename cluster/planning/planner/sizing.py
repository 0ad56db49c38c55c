"""How many replicas a load needs, by arithmetic alone: what `baton size` explains step by step. Pure.

Coarser than planning by simulation (`search.py`), and good to begin with: it needs no trace. Prefill is taken as a
queue with one server and equal service times (M/D/1), decode as a batch that stays full at the peak.
"""

from dataclasses import dataclass
from math import ceil

from cluster.planning.outcome import Slo
from cluster.planning.planner.demand import batch_at
from cluster.planning.planner.question import CannotPlan
from cluster.planning.trace import Trace
from routing.profile import Profile

PEAK_WINDOW_S = 60.0
"""A peak is the busiest window of this length."""

KV_HEADROOM = 0.9
"""The share of the KV cache that decoding requests may hold: the rest takes what runs longer than the mean."""

SIGNAL_SHARE = 0.8
"""Scale before what a replica holds inside its targets is reached: a new one takes its time to start."""


@dataclass(frozen=True, slots=True)
class PeakLoad:
    """What comes at the busiest time: `requests_per_s` of mean lengths; `cached` of each prompt is not computed."""

    requests_per_s: float
    prompt_tokens: float
    output_tokens: float
    cached: float = 0.0

    @property
    def context_tokens(self) -> float:
        """What a decoding request holds on average."""
        return self.prompt_tokens + self.output_tokens / 2

    @property
    def computed_tokens(self) -> int:
        """Of a prompt."""
        return max(1, ceil(self.prompt_tokens * (1 - self.cached)))


@dataclass(frozen=True, slots=True)
class Sizing:
    """The figures of all steps.

    `in_flight` requests decode at once at the peak, and hold `kv_bytes`. One decode replica holds `batch` of them at
    `step_s` a token; one prefill replica takes `prompts_per_s`, each `prefill_s` long, busy the share `busy` of its
    time. `prefill` and `decode` replicas serve the peak, with `spare` of each more also when so many are lost.
    """

    in_flight: float
    kv_bytes: float
    batch: int
    step_s: float
    prefill_s: float
    busy: float
    prompts_per_s: float
    prefill: int
    decode: int
    spare: int
    scale_at_kv_use: float
    scale_at_queue_s: float


def peak_of(trace: Trace, cached: float) -> PeakLoad:
    """The busiest minute of a trace, with the mean lengths of all of it."""
    arrivals = [request.arrival_s for request in trace.requests]
    most, first = 0, 0
    for last, arrival_s in enumerate(arrivals):
        while arrival_s - arrivals[first] >= PEAK_WINDOW_S:
            first += 1
        most = max(most, last - first + 1)
    window_s = min(PEAK_WINDOW_S, max(arrivals[-1], 1.0))
    count = len(trace)
    prompts = sum(request.prompt_tokens for request in trace.requests) / count
    outputs = sum(request.output_tokens for request in trace.requests) / count
    return PeakLoad(most / window_s, prompts, outputs, cached)


def size(load: PeakLoad, rates: Profile, kv_tokens: int, slo: Slo, spare: int) -> Sizing:
    """All steps. Raises `CannotPlan` where one replica cannot keep the targets for a single request."""
    prefill_s = rates.prefill_s(load.computed_tokens, round(load.prompt_tokens) - load.computed_tokens)
    step_s = rates.step_s(1, load.context_tokens)
    busy = _busy(prefill_s, slo.ttft_s - step_s)
    if step_s > slo.itl_s:
        raise CannotPlan(f"a request alone takes {1000 * step_s:.1f} ms a token, the target is {1000 * slo.itl_s:g}")
    if load.context_tokens > KV_HEADROOM * kv_tokens:
        raise CannotPlan(f"a request of {load.context_tokens:,.0f} tokens does not fit in {kv_tokens:,} tokens of KV")
    batch = batch_at(rates, load.context_tokens, round(KV_HEADROOM * kv_tokens), slo.itl_s)
    full_s = rates.step_s(batch, batch * load.context_tokens)
    in_flight = load.requests_per_s * load.output_tokens * full_s
    prompts_per_s = busy / prefill_s
    return Sizing(
        in_flight=in_flight,
        kv_bytes=in_flight * load.context_tokens * rates.kv_bytes_per_token,
        batch=batch,
        step_s=full_s,
        prefill_s=prefill_s,
        busy=busy,
        prompts_per_s=prompts_per_s,
        prefill=ceil(load.requests_per_s / prompts_per_s),
        decode=max(1, ceil(in_flight / batch)),
        spare=spare,
        scale_at_kv_use=SIGNAL_SHARE * batch * load.context_tokens / kv_tokens,
        scale_at_queue_s=SIGNAL_SHARE * (slo.ttft_s - step_s - prefill_s),
    )


def _busy(service_s: float, target_s: float) -> float:
    """How busy a server may be for the mean time in it, waiting and service, to stay inside the target.

    M/D/1: waiting is service · busy / (2 · (1 - busy)), by Pollaczek and Khinchine.
    """
    if service_s >= target_s:
        raise CannotPlan(
            f"computing a prompt alone takes {service_s:.2f} s, and {target_s:.2f} are left of the target for the "
            "first token: allow more, cache more, or take faster replicas"
        )
    waiting = (target_s - service_s) / service_s
    return 2 * waiting / (1 + 2 * waiting)
