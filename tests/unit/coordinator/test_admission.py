"""Who may start, and when the others are told to return."""

import pytest

from cluster.coordinator.admission import Admission
from cluster.errors import InvalidRequest, Overloaded


def test_outputs_enter_up_to_the_limit_and_leave_room_for_others() -> None:
    admission = Admission(4)
    admission.enter(3)
    admission.admit(1)
    with pytest.raises(Overloaded, match="3 outputs are in flight, at most 4 may be"):
        admission.enter(2)
    admission.leave(3)
    admission.enter(4)
    assert admission.in_flight == 4


def test_more_outputs_than_may_ever_run_are_the_requests_own_fault() -> None:
    with pytest.raises(InvalidRequest, match="5 outputs"):
        Admission(4).admit(5)


def test_retry_after_is_half_the_mean_service_time_between_a_second_and_a_minute() -> None:
    admission = Admission(1)
    assert admission.retry_after_s == 1.0
    admission.finished(20.0)
    assert admission.retry_after_s == 10.0
    admission.finished(10.0)
    assert admission.service_s == pytest.approx(19.0)
    admission.finished(10_000.0)
    assert admission.retry_after_s == 60.0
    admission.enter(1)
    with pytest.raises(Overloaded) as raised:
        admission.admit(1)
    assert raised.value.retry_after_s == 60.0
