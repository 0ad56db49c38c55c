"""Spans, as OpenTelemetry's own in-memory exporter gets them."""

from dataclasses import replace

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from cluster.coordinator.observer import Ended, Timings
from cluster.coordinator.placement import Placement
from cluster.gateway.tracing import Tracing
from routing.router import Decision, Predicted
from tests.simulation.world import request

NOW_NS = 1_000_000_000_000
PREDICTED = Predicted(0.1, 0.2, 0.05, 0.05, 0.01, computed_tokens=100, cached_tokens=32)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def span_of(outcome: str, placement: Placement, **headers: str) -> ReadableSpan:
    exporter = InMemorySpanExporter()
    tracing = Tracing(SimpleSpanProcessor(exporter), lambda: NOW_NS)
    asked = replace(request(prompt=132), trace_headers=headers)
    timings = Timings(2.0, 0.5, queue_s=0.1, prefill_s=0.3)
    tracing.ended(Ended(asked, placement, outcome, 132, 7, 32, 0, None, 1, timings, None, None))
    tracing.close()
    (span,) = exporter.get_finished_spans()
    return span


def test_a_span_shows_predicted_against_actual() -> None:
    placement = Placement(Decision("d1", "p1", "cheapest", PREDICTED), ttft_s=0.48)
    span = span_of("finished", placement)
    assert (span.start_time, span.end_time) == (NOW_NS - 2_000_000_000, NOW_NS)
    assert span.attributes is not None
    told = {name: span.attributes[f"baton.{name}"] for name in ("decode", "prefill", "why", "outcome")}
    assert told == {"decode": "d1", "prefill": "p1", "why": "cheapest", "outcome": "finished"}
    assert span.attributes["baton.predicted.ttft_s"] == PREDICTED.ttft_s
    assert span.attributes["baton.actual.ttft_s"] == 0.48
    assert span.attributes["baton.actual.queue_s"] == 0.1


def test_a_span_is_a_child_of_the_clients_own() -> None:
    span = span_of("finished", Placement(), traceparent=TRACEPARENT)
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACEPARENT.split("-")[1]


def test_a_request_that_failed_makes_a_span_with_an_error() -> None:
    span = span_of("replica_lost", Placement())
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "replica_lost"
