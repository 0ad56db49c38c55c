"""What one gateway learns of how much the others have to do."""

import pytest

from routing.fleet import Fleet, Replica, ReplicaLoad, Role
from routing.ledger import Ledger
from routing.rates import Rates
from routing.router import Decision, RouteRequest
from routing.view import View
from tests.unit.routing.fleets import PROFILE


def fleet(others: int) -> Fleet:
    return Fleet({"d": Replica("d", Role.DECODE, "n", "f", 16, 4096, load=ReplicaLoad(others_requests=others))})


def test_an_equal_gateway_has_an_equal_share_though_neither_is_busy_when_the_other_is() -> None:
    ledger = Ledger()
    view = View(Rates(PROFILE), ledger.books, far_factor=2.0)
    for number in range(400):
        lease = (
            ledger.reserve(Decision("d", None, ""), RouteRequest("r", 64, 16), float(number))
            if number % 10 == 0
            else None
        )
        view.look(fleet(others=number % 10 == 5), float(number))
        if lease is not None:
            ledger.release(lease, float(number))
    assert view.share == pytest.approx(1.0, rel=0.5)
