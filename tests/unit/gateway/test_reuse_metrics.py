"""Where prompts' tokens are counted to have come from, and which loads are held against their predictions."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from cluster.coordinator.observer import Ended, Timings
from cluster.coordinator.placement import Placement
from cluster.dataplane.frames import LegReport
from cluster.gateway.reuse_metrics import LoadTime, PromptSources, ReuseMetrics, load_time, prompt_sources
from routing.fleet import Fleet, Replica, ReplicaLoad, Role
from routing.router import Decision, Predicted
from tests.simulation.world import request

PREDICTED = Predicted(0.0, 0.2, 0.05, 0.01, 0.01, 100, 0)
WHOLE = LegReport(queued_s=0.005, first_token_s=0.045, handoff_outcome="ready", loaded_blocks=6)


def replica(replica_id: str) -> Replica:
    return Replica(
        replica_id=replica_id,
        role=Role.DECODE,
        node_id="n",
        kv_fingerprint="kv",
        block_size_tokens=16,
        max_model_len=2048,
        kv_blocks=100,
        ready=True,
        load=ReplicaLoad(),
    )


FLEET = Fleet({"p": replica("p"), "d": replica("d")})


def ended(prefill: LegReport | None, decode: LegReport | None, cached: int = 0, prefill_cached: int = 0) -> Ended:
    decision = Decision("d", None if prefill is None else "p", "", PREDICTED)
    return Ended(
        request=request(prompt=100),
        placement=Placement(decision),
        outcome="finished",
        prompt_tokens=100,
        generated_tokens=7,
        cached_tokens=cached,
        prefill_cached_tokens=prefill_cached,
        itl_s=None,
        attempts=1,
        timings=Timings(2.0, 1.0, transfer_s=0.02),
        prefill=prefill,
        decode=decode,
    )


def test_tokens_are_counted_where_the_prompt_was_computed() -> None:
    alone = ended(None, LegReport(loaded_blocks=3, pulled_blocks=2), cached=80)
    assert prompt_sources(alone, FLEET) == PromptSources(device=32, host=16, remote=32, computed=20)
    handed_off = ended(LegReport(loaded_blocks=1), WHOLE, cached=96, prefill_cached=48)
    assert prompt_sources(handed_off, FLEET) == PromptSources(device=32, host=16, remote=0, computed=52)
    assert prompt_sources(handed_off, Fleet({})) is None
    assert prompt_sources(ended(None, None), FLEET) is None


@given(st.integers(0, 100), st.integers(0, 9), st.integers(0, 9))
def test_the_sources_of_a_prompt_sum_to_it(cached: int, loaded: int, pulled: int) -> None:
    found = prompt_sources(ended(None, LegReport(loaded_blocks=loaded, pulled_blocks=pulled), cached=cached), FLEET)
    assert found is not None
    assert found.device + found.host + found.remote + found.computed == 100
    assert min(found.device, found.host, found.remote, found.computed) >= 0


def test_a_whole_hand_off_says_how_long_loading_took() -> None:
    found = load_time(ended(LegReport(), WHOLE, cached=96))
    assert found == LoadTime(predicted_s=0.05, actual_s=pytest.approx(0.02 + 0.045 - 0.005 - 0.01))
    assert load_time(ended(LegReport(), msgspec.structs.replace(WHOLE, recomputed_blocks=1))) is None
    assert load_time(ended(LegReport(loaded_blocks=1), WHOLE)) is None
    assert load_time(ended(None, WHOLE)) is None


def test_only_what_finished_where_it_began_is_counted() -> None:
    registry = CollectorRegistry()
    metrics = ReuseMetrics(registry, lambda: FLEET)
    whole = ended(LegReport(), WHOLE, cached=96, prefill_cached=32)
    for each in (whole, replace(whole, resumes=1), replace(whole, outcome="cancelled")):
        metrics.ended(each)
    assert registry.get_sample_value("baton_prompt_source_tokens_total", {"source": "device"}) == 32
    assert registry.get_sample_value("baton_prompt_source_tokens_total", {"source": "computed"}) == 68
    assert registry.get_sample_value("baton_handoff_load_seconds_count", {"kind": "actual"}) == 1
    assert registry.get_sample_value("baton_handoff_load_seconds_sum", {"kind": "predicted"}) == 0.05
