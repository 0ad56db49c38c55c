"""The gateway's metrics, read back with Prometheus' own parser."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.coordinator.observer import Ended, Timings
from cluster.coordinator.placement import Placement
from cluster.coordinator.routing_choice import choose_routing
from cluster.dataplane.frames import LegReport, Load
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.routing_metrics import RoutingCollector
from cluster.gateway.worker_metrics import WorkerCollector
from routing.index import Tier
from routing.router import Decision, Predicted
from tests.simulation.world import request
from tests.support.serving import config_of

STORE = {
    "store_slots": 9.0,
    "store_slots/free": 7.0,
    "store_moved_bytes/pulled/tcp": 4096.0,
    "store_pins": 2.0,
    "odd name": 1.0,
}
IDLE = Load(0, 0, 0, 0, 0.0, healthy=True, draining=False)


def scraped(metrics: GatewayMetrics) -> dict[tuple[str, ...], float]:
    """Samples by name and label values; without buckets and creation times."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def ended(outcome: str = "finished", timings: Timings | None = None, decode: LegReport | None = None) -> Ended:
    return Ended(
        request=request(prompt=100),
        placement=Placement(),
        outcome=outcome,
        prompt_tokens=100,
        generated_tokens=7,
        cached_tokens=96,
        prefill_cached_tokens=0,
        itl_s=None,
        attempts=1,
        timings=timings or Timings(2.0, 1.0),
        prefill=None,
        decode=decode,
    )


def test_requests_are_counted_by_outcome_refused_ones_included() -> None:
    metrics = GatewayMetrics()
    for outcome in ("finished", "finished", "cancelled", "replica_lost"):
        metrics.started(request(prompt=100))
        metrics.ended(ended(outcome))
    metrics.refused("overloaded")
    samples = scraped(metrics)
    assert {k[1]: v for k, v in samples.items() if k[0] == "baton_requests_total"} == {
        "finished": 2,
        "cancelled": 1,
        "replica_lost": 1,
        "overloaded": 1,
    }
    assert samples["baton_prompt_tokens_total",] == 400
    assert samples["baton_cached_tokens_total",] == 4 * 96
    assert samples["baton_request_seconds_count",] == 2


def test_predictions_are_set_against_what_came() -> None:
    metrics = GatewayMetrics()
    metrics.predicted(Predicted(0.1, 0.2, 0.05, 0.05, 0.01, 100, 32), 0.5)
    samples = scraped(metrics)
    assert samples["baton_ttft_prediction_error_ratio_sum",] == pytest.approx(0.2)
    assert samples["baton_predicted_requests_ttft_seconds_total",] == 0.5
    assert samples["baton_predicted_first_token_part_seconds_total", "compute"] == 0.2


def test_tokens_that_come_together_share_their_gap() -> None:
    metrics = GatewayMetrics()
    metrics.first_token(0.3)
    metrics.tokens(2, None)
    metrics.tokens(4, 0.08)
    samples = scraped(metrics)
    assert samples["baton_time_to_first_token_seconds_sum",] == 0.3
    assert samples["baton_inter_token_seconds_count",] == 4
    assert samples["baton_inter_token_seconds_sum",] == pytest.approx(0.08)
    assert samples["baton_generated_tokens_total",] == 6
    assert 'baton_inter_token_seconds_bucket{le="0.015"} 0.0' in metrics.render().decode()
    assert 'baton_inter_token_seconds_bucket{le="0.02"} 4.0' in metrics.render().decode()


def test_the_first_tokens_time_is_split_and_absent_parts_are_not_observed() -> None:
    metrics = GatewayMetrics()
    metrics.ended(ended(timings=Timings(2.0, 1.0, 0.1, 0.6, 0.25, 0.05)))
    metrics.ended(ended(timings=Timings(2.0, 1.0, 0.4, 0.6, line_s=0.75)))
    samples = scraped(metrics)
    parts = {k[1]: v for k, v in samples.items() if k[0] == "baton_first_token_part_seconds_sum"}
    assert parts == {"line": 0.75, "queue": 0.5, "prefill": 1.2, "transfer": 0.25, "decode_wait": 0.05}
    assert samples["baton_first_token_part_seconds_count", "transfer"] == 1


def test_what_became_of_the_blocks_is_counted_by_reason() -> None:
    metrics = GatewayMetrics()
    metrics.ended(ended(decode=LegReport(handoff_outcome="ready", pulled_blocks=3, pulled_bytes=900, loaded_blocks=6)))
    metrics.ended(ended(decode=LegReport(handoff_outcome="late", recomputed_blocks=2, recompute_reason="late")))
    samples = scraped(metrics)
    assert samples["baton_kv_moved_bytes_total",] == 900
    assert samples["baton_kv_pulled_blocks_total",] == 3
    assert samples["baton_kv_loaded_blocks_total",] == 6
    assert samples["baton_kv_recomputed_blocks_total", "late"] == 2
    assert samples["baton_handoffs_total", "ready"] == samples["baton_handoffs_total", "late"] == 1


def test_fetches_of_both_legs_are_counted_by_outcome() -> None:
    metrics = GatewayMetrics()
    fetched = LegReport(fetch_outcome="ready", pulled_blocks=3, pulled_bytes=900)
    metrics.ended(replace(ended(), prefill=fetched))
    metrics.ended(ended(decode=LegReport(fetch_outcome="absent")))
    samples = scraped(metrics)
    assert samples["baton_fetches_total", "ready"] == samples["baton_fetches_total", "absent"] == 1
    assert samples["baton_kv_moved_bytes_total",] == 900


def test_answers_that_went_on_elsewhere_are_counted() -> None:
    metrics = GatewayMetrics()
    metrics.ended(replace(ended(), resumes=2))
    assert scraped(metrics)["baton_resumed_total",] == 2


def test_legs_in_flight_go_up_and_down() -> None:
    metrics = GatewayMetrics()
    metrics.routed(Decision("d0", "p0", ""))
    metrics.legs("decode", 1)
    metrics.legs("prefill", 1)
    metrics.legs("prefill", -1)
    samples = scraped(metrics)
    assert samples["baton_legs_in_flight", "decode"] == 1
    assert samples["baton_legs_in_flight", "prefill"] == 0
    assert samples["baton_attempts_total", "disaggregated"] == 1


def test_workers_are_shown_as_they_last_reported_and_not_after_they_are_gone() -> None:
    loads = {
        "d0": Load(3, 1, 2, 50, 0.5, True, False, {"loaded_blocks": 9.0}, STORE),
        "p0": IDLE,
    }
    metrics = GatewayMetrics()
    metrics.collect_from(WorkerCollector(lambda: loads, lambda: {"d0": "0123456789abcdef"}))
    samples = scraped(metrics)
    assert samples["baton_worker_running", "d0"] == 3
    assert samples["baton_worker_running", "p0"] == 0
    assert samples["baton_worker_held", "d0"] == 2
    assert samples["baton_worker_kv_usage", "d0"] == 0.5
    assert samples["baton_worker_healthy", "p0"] == 1
    assert samples["baton_worker_loaded_blocks_total", "d0"] == 9
    assert samples["baton_store_slots", "0123456789ab", "d0", "free"] == 7
    assert samples["baton_store_capacity_slots", "0123456789ab", "d0"] == 9
    assert samples["baton_store_moved_bytes", "pulled", "tcp", "0123456789ab", "d0"] == 4096
    assert samples["baton_store_pins", "0123456789ab", "d0"] == 2
    assert samples["baton_worker_odd_name", "d0"] == 1
    loads.clear()
    assert not [key for key in scraped(metrics) if key[0].startswith("baton_worker")]


def test_two_gateways_in_one_process_count_apart() -> None:
    first, second = GatewayMetrics(), GatewayMetrics()
    first.refused("overloaded")
    assert ("baton_requests_total", "overloaded") not in scraped(second)


def test_what_the_router_knows_is_shown_at_each_scrape() -> None:
    metrics, routing = GatewayMetrics(), choose_routing(config_of("simulated.yaml"))
    metrics.collect_from(RoutingCollector(routing))
    routing.index.place("d0", "node")
    routing.index.snapshot("d0", Tier.DEVICE, [1, 2, 3])
    routing.error.observe(0.9, 1.0)
    samples = scraped(metrics)
    assert samples["baton_index_keys",] == 3
    assert samples["baton_index_replicas", "exact"] == 1
    assert samples["baton_ledger_leases",] == 0
    assert samples["baton_ttft_prediction_error_median_ratio",] == pytest.approx(0.1)
    routing.gone("d0")
    assert scraped(metrics)["baton_index_keys",] == 0
