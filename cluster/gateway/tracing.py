"""Traces: one OpenTelemetry span for each request, with what the router predicted beside what came.

A span is made when its request has ended, with the times it had, so that nothing is added on the way of a token. It is
a child of the client's own span when the request brought one (W3C `traceparent`).
"""

import time
from collections.abc import Callable

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cluster.coordinator.observer import Ended
from cluster.coordinator.placement import Placement

_NS = 1_000_000_000


def exporting_to(endpoint: str) -> SpanProcessor:
    """Sends spans in batches to an OTLP collector over HTTP, e.g. `http://collector:4318/v1/traces`."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))


class Tracing:
    """Implements `cluster.coordinator.observer.EndListener`. `wall_clock_ns` is the time since the Unix epoch."""

    def __init__(self, processor: SpanProcessor, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "baton-gateway"}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("baton")
        self._context = TraceContextTextMapPropagator()
        self._wall_clock_ns = wall_clock_ns

    def close(self) -> None:
        """Send what waits; may take as long as the exporter's own deadline."""
        self._provider.shutdown()

    def ended(self, ended: Ended) -> None:
        """See `EndListener`."""
        end_ns = self._wall_clock_ns()
        span = self._tracer.start_span(
            "baton.generate",
            context=self._context.extract(ended.request.trace_headers or {}),
            kind=SpanKind.SERVER,
            start_time=end_ns - int(ended.timings.total_s * _NS),
        )
        span.set_attributes(_counts(ended))
        _describe(span, ended.placement)
        if ended.outcome not in ("finished", "cancelled"):
            span.set_status(Status(StatusCode.ERROR, ended.outcome))
        span.end(end_ns)


def _counts(ended: Ended) -> dict[str, str | int | float]:
    seen = {
        "line_s": ended.timings.line_s,
        "queue_s": ended.timings.queue_s,
        "prefill_s": ended.timings.prefill_s,
        "transfer_s": ended.timings.transfer_s,
        "decode_wait_s": ended.timings.decode_wait_s,
    }
    return {
        "baton.request_id": ended.request.request_id,
        "baton.outcome": ended.outcome,
        "baton.attempts": ended.attempts,
        "baton.prompt_tokens": ended.prompt_tokens,
        "baton.generated_tokens": ended.generated_tokens,
        "baton.cached_tokens": ended.cached_tokens,
        **{f"baton.actual.{name}": value for name, value in seen.items() if value is not None},
    }


def _describe(span: Span, placement: Placement) -> None:
    decision = placement.decision
    if decision is None:
        return
    span.set_attributes({"baton.decode": decision.decode, "baton.why": decision.why})
    if decision.prefill is not None:
        span.set_attribute("baton.prefill", decision.prefill)
    if placement.ttft_s is not None:
        span.set_attribute("baton.actual.ttft_s", placement.ttft_s)
    predicted = decision.predicted
    if predicted is not None:
        span.set_attribute("baton.predicted.ttft_s", predicted.ttft_s)
        for name in ("queue_s", "compute_s", "load_s", "first_step_s", "itl_s", "computed_tokens", "cached_tokens"):
            span.set_attribute(f"baton.predicted.{name}", getattr(predicted, name))
