"""What `/metrics` tells of the door."""

from prometheus_client import CollectorRegistry

from cluster.coordinator.admission.queue import AdmissionStatistics, Refusal
from cluster.gateway.admission_metrics import AdmissionCollector


def test_what_waits_is_told_by_class_and_what_was_refused_by_reason() -> None:
    registry = CollectorRegistry()
    told = AdmissionStatistics(
        in_flight=7,
        waiting_requests={-5: 1, -1: 2, 0: 4, 3: 8},
        waiting_tokens={-5: 10, -1: 20, 0: 40, 3: 80},
        waited=6,
        waited_s=1.5,
        refused={Refusal.FULL: 9},
    )
    registry.register(AdmissionCollector(lambda: told))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("baton_outputs_in_flight") == 7
    assert [value("baton_waiting_requests", priority=p) for p in ("sooner", "normal", "later")] == [3, 4, 8]
    assert [value("baton_waiting_tokens", priority=p) for p in ("sooner", "normal", "later")] == [30, 40, 80]
    assert value("baton_admission_wait_seconds_count") == 6
    assert value("baton_admission_wait_seconds_sum") == 1.5
    assert value("baton_refused_total", reason="full") == 9
    assert value("baton_refused_total", reason="late") == 0
