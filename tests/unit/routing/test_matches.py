"""Which replicas are fit for a request, and what is known of it beforehand."""

from math import inf

import numpy as np

from routing.ledger import Ledger
from routing.matches import Matches, matches
from routing.rates import Rates
from routing.view import View
from tests.unit.routing.fleets import PROFILE, Desk, prompt, replica

REPLICAS = [
    replica("p0"),
    replica("p1", kv_fingerprint="g"),
    replica("d0"),
    replica("d1", kv_fingerprint="g", block_size_tokens=64),
    replica("d2", kv_fingerprint="h"),
]


def view() -> View:
    desk = Desk(REPLICAS)
    made = View(Rates(PROFILE), Ledger().books)
    made.look(desk.fleet, 0.0)
    return made


def plain(found: Matches) -> list[list[float]]:
    partners = [column.tolist() for each in found.partners for column in each]
    return [found.seats.tolist(), found.stalling.tolist(), found.arriving.tolist(), *partners]


def test_what_is_known_beforehand_is_what_any_unrestricted_request_gets() -> None:
    seen = view()
    for tokens in (65, 641, 6400):
        request = prompt(tokens)
        assert plain(seen.matches(request)) == plain(matches(seen.prefills, seen.decodes, request))


def test_only_replicas_of_one_fingerprint_are_partners() -> None:
    found = view().matches(prompt(641))
    assert [[column.tolist() for column in each] for each in found.partners] == [
        [[0.0, inf], [0.0, inf, inf]],
        [[inf, 0.0], [inf, 0.0, inf]],
    ]
    assert np.isfinite(found.seats).all()


def test_what_leaves_no_whole_block_is_not_handed_over() -> None:
    found = view().matches(prompt(40))
    assert [each.seats.tolist() for each in found.partners] == [[0.0, inf, inf]]


def test_the_excluded_and_the_too_small_are_unfit() -> None:
    seen = view()
    found = seen.matches(prompt(641, exclude=frozenset({"d0", "p1"})))
    assert (found.seats.tolist(), found.partners) == ([inf, 0.0, 0.0], [])
    assert seen.matches(prompt(20_000)).seats.tolist() == [inf, inf, inf]
    assert seen.matches(prompt(641, may_disaggregate=False)).partners == []
