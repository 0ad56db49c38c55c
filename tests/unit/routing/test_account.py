"""The prefill queue of one replica: what is left of it as time goes by."""

from hypothesis import given
from hypothesis import strategies as st

from routing.account import Account

SECONDS = st.floats(0.0, 10.0, allow_nan=False)


@given(st.lists(SECONDS, min_size=1, max_size=8), st.floats(0.0, 100.0))
def test_a_backlog_is_never_negative_however_floats_round(seconds: list[float], wait_s: float) -> None:
    account = Account()
    for number, each_s in enumerate(seconds):
        account.enqueue(number, 1, each_s, 0.0)
    for number in range(len(seconds)):
        assert account.backlog_s(wait_s) >= 0.0
        account.dequeue(number, 0.0)
    assert account.backlog_s(wait_s) == 0.0


def test_the_front_of_the_queue_counts_only_what_is_left_of_it() -> None:
    account = Account()
    account.enqueue(1, 100, 2.0, now=10.0)
    account.enqueue(2, 100, 3.0, now=11.0)
    assert account.backlog_s(11.5) == 3.5
    assert account.backlog_s(20.0) == 3.0
