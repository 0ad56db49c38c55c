"""How long a request waits for a replica."""

import pytest

from cluster.coordinator.patience import FIRST_PAUSE_S, FORGIVE_AFTER_S, LONGEST_PAUSE_S, Patience


def pauses(patience: Patience, now: float) -> list[float]:
    made = []
    while (pause_s := patience.pause_s(now)) is not None:
        made.append(pause_s)
        now += pause_s
    return made


def test_it_looks_ever_more_seldom_and_no_longer_than_its_limit() -> None:
    made = pauses(Patience(8.0), now=100.0)
    assert made[:2] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S]
    assert max(made) == LONGEST_PAUSE_S
    assert sum(made) == pytest.approx(8.0)


def test_each_wait_has_the_whole_limit() -> None:
    patience = Patience(8.0)
    first = pauses(patience, now=0.0)
    patience.reset()
    assert pauses(patience, now=50.0) == pytest.approx(first)


def test_it_forgives_after_a_while_of_waiting_and_not_while_nobody_waits() -> None:
    patience = Patience(8.0)
    assert not patience.forgives(100.0)
    patience.pause_s(100.0)
    assert not patience.forgives(100.0)
    assert patience.forgives(100.0 + FORGIVE_AFTER_S)
    patience.reset()
    assert not patience.forgives(200.0)
