"""What the ledger does with a caller's bug."""

import pytest

from routing.ledger import Ledger
from routing.router import Decision, RouteRequest


def test_a_second_release_changes_nothing_but_is_counted_and_fails_the_check() -> None:
    ledger = Ledger()
    first = ledger.reserve(Decision("d0", None, ""), RouteRequest("a", 10, 5))
    ledger.reserve(Decision("d0", None, ""), RouteRequest("b", 10, 5))
    ledger.release(first)
    ledger.check()
    before = ledger.load("d0")
    ledger.release(first)
    assert ledger.load("d0") == before
    assert ledger.statistics().released_twice == 1
    with pytest.raises(AssertionError, match="released twice"):
        ledger.check()
