"""Gaps between tokens, against prometheus-client's own histogram."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cluster.gateway.token_gaps import TokenGaps

BOUNDS_S = (0.25, 0.5, 1.0)
GAPS = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.375, 0.5, 1.0, 8.0]), st.integers(1, 9)))


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(GAPS)
def test_many_gaps_at_once_are_what_single_ones_would_have_been(gaps: list[tuple[float, int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    together = TokenGaps("gap_seconds", "g", BOUNDS_S)
    ours.register(together)
    single = Histogram("gap_seconds", "g", buckets=BOUNDS_S, registry=theirs)
    for gap_s, count in gaps:
        together.observe(gap_s, count)
        for _ in range(count):
            single.observe(gap_s)
    assert samples(ours) == samples(theirs)
