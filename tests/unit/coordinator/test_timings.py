"""How the time to the first token is split."""

import pytest

from cluster.coordinator.observer import Timings
from cluster.coordinator.timings import Marks, split
from cluster.dataplane.frames import LegReport

READY = LegReport(held_s=1.5, handoff_outcome="ready")
PREFILL = LegReport(queued_s=0.25)


def test_the_parts_of_a_split_request_add_up_to_the_time_since_routing() -> None:
    timings = split(Marks(0.0, 1.0, 2.0, 3.0), 9.0, PREFILL, READY)
    assert timings == Timings(9.0, 3.0, queue_s=0.25, prefill_s=0.75, transfer_s=0.5, decode_wait_s=0.5)


def test_a_prefill_end_heard_of_after_the_first_token_does_not_count_beyond_it() -> None:
    timings = split(Marks(0.0, 0.0, 2.0, 1.75), 9.0, PREFILL, READY)
    assert timings == Timings(9.0, 1.75, queue_s=0.25, prefill_s=1.5, transfer_s=0.0, decode_wait_s=0.25)


def test_a_local_request_is_split_by_its_decode_replicas_report() -> None:
    report = LegReport(queued_s=0.5, first_token_s=1.0)
    assert split(Marks(0.0, 0.0, None, 1.6), 9.0, None, report) == Timings(9.0, 1.6, 0.5, 1.0)


def test_what_came_from_another_node_first_counts_as_transfer() -> None:
    report = LegReport(held_s=0.25, queued_s=0.5, first_token_s=1.0, fetch_outcome="ready")
    assert split(Marks(0.0, 0.0, None, 2.0), 9.0, None, report) == Timings(9.0, 2.0, 0.5, 1.0, 0.25)
    prefill = LegReport(held_s=0.5, queued_s=0.25, fetch_outcome="ready")
    assert split(Marks(0.0, 1.0, 2.0, 3.0), 9.0, prefill, READY) == Timings(9.0, 3.0, 0.25, 0.25, 1.0, 0.5)


@pytest.mark.parametrize("outcome", ["failed", "late"])
def test_a_prefill_leg_that_was_of_no_use_has_no_part(outcome: str) -> None:
    report = LegReport(held_s=1.0, handoff_outcome=outcome)
    assert split(Marks(0.0, 0.0, 1.5, 2.0), 9.0, PREFILL, report) == Timings(9.0, 2.0)


def test_a_request_that_ended_before_its_report_is_split_as_far_as_is_known() -> None:
    assert split(Marks(0.0, 0.0), 9.0, None, None) == Timings(9.0)
    assert split(Marks(0.0, 0.0, 1.0, 2.0), 9.0, PREFILL, None) == Timings(9.0, 2.0, 0.25, 0.75)
