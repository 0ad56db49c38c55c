"""Sizes follow from the load by the formulas that are stated, and never promise what a replica cannot keep."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.planning.outcome import Slo
from cluster.planning.planner.question import CannotPlan
from cluster.planning.planner.sizing import KV_HEADROOM, PeakLoad, peak_of, size
from cluster.planning.trace import Trace, TraceRequest
from cluster.rates import router_profile
from configs.profiles import named

PROFILE = named("h100/llama-3-8b")
RATES = router_profile(PROFILE)
SLO = Slo(ttft_s=2.0, itl_s=0.025)
LOAD = PeakLoad(requests_per_s=20.0, prompt_tokens=2_000, output_tokens=300)


@given(st.floats(0.1, 500), st.integers(10, 20_000), st.integers(2, 2_000), st.floats(0, 0.9), st.integers(0, 3))
def test_the_replicas_hold_the_peak_inside_the_targets(
    per_s: float, prompt: int, output: int, cached: float, spare: int
) -> None:
    load = PeakLoad(per_s, prompt, output, cached)
    found = size(load, RATES, PROFILE.kv_tokens, SLO, spare)
    assert found.step_s <= SLO.itl_s
    assert found.batch * load.context_tokens <= KV_HEADROOM * PROFILE.kv_tokens
    assert found.decode * found.batch >= found.in_flight
    assert found.prefill * found.prompts_per_s >= per_s * (1 - 1e-9)
    waiting_s = found.prefill_s * found.busy / (2 * (1 - found.busy))  # M/D/1
    assert waiting_s + found.prefill_s <= SLO.ttft_s


def test_twice_the_requests_take_about_twice_the_replicas() -> None:
    once, twice = (
        size(replace(LOAD, requests_per_s=rate), RATES, PROFILE.kv_tokens, SLO, 0) for rate in (100.0, 200.0)
    )
    assert 0 <= 2 * once.prefill - twice.prefill <= 1
    assert 0 <= 2 * once.decode - twice.decode <= 1


def test_caches_save_prefill_replicas_alone() -> None:
    cold, warm = (
        size(replace(LOAD, requests_per_s=100.0, cached=c), RATES, PROFILE.kv_tokens, SLO, 1) for c in (0, 0.5)
    )
    assert warm.prefill < cold.prefill
    assert warm.decode == cold.decode


@pytest.mark.parametrize(
    ("load", "slo", "said"),
    [
        (LOAD, Slo(ttft_s=0.02, itl_s=0.025), "computing a prompt alone takes"),
        (LOAD, Slo(ttft_s=2.0, itl_s=0.005), "a request alone takes"),
        (replace(LOAD, output_tokens=1_000_000), Slo(ttft_s=2.0, itl_s=1.0), "does not fit in"),
    ],
)
def test_what_one_replica_cannot_keep_for_one_request_is_said(load: PeakLoad, slo: Slo, said: str) -> None:
    with pytest.raises(CannotPlan, match=said):
        size(load, RATES, PROFILE.kv_tokens, slo, 0)


def test_the_peak_of_a_trace_is_its_busiest_minute() -> None:
    quiet = [TraceRequest(60.0 * i, 1_000, 100, ()) for i in range(10)]
    burst = [TraceRequest(300.0 + i, 1_000, 100, ()) for i in range(30)]
    trace = Trace(sorted([*quiet, *burst], key=lambda request: request.arrival_s), 512)
    assert peak_of(trace, 0.25) == PeakLoad(31 / 60, 1_000, 100, 0.25)
