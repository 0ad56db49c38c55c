"""Which placements of a request are considered at all."""

from routing.router import RouteRequest
from tests.unit.routing.fleets import Desk, prompt, replica

REPLICAS = [
    replica("p0"),
    replica("p1", kv_fingerprint="g"),
    replica("d0"),
    replica("d1", kv_fingerprint="g", block_size_tokens=64),
    replica("d2", kv_fingerprint="h"),
]
ALONE = {(None, "d0"), (None, "d1"), (None, "d2")}


def considered(request: RouteRequest) -> set[tuple[str | None, str]]:
    return {(each.prefill, each.decode) for each in Desk(REPLICAS).explain(request)}


def test_only_replicas_of_one_fingerprint_are_partners() -> None:
    assert considered(prompt(641)) == {*ALONE, ("p0", "d0"), ("p1", "d1")}


def test_what_leaves_no_whole_block_is_not_handed_over() -> None:
    assert considered(prompt(64)) == {*ALONE, ("p0", "d0")}
    assert considered(prompt(65)) == {*ALONE, ("p0", "d0"), ("p1", "d1")}


def test_the_excluded_and_the_too_small_are_not_considered() -> None:
    assert considered(prompt(641, exclude=frozenset({"d0", "p1"}))) == {(None, "d1"), (None, "d2")}
    assert considered(prompt(20_000)) == set()
    assert considered(prompt(641, may_disaggregate=False)) == ALONE


def test_a_fleet_of_nobody_offers_nothing() -> None:
    assert Desk([]).explain(prompt(641)) == []


def test_the_nearest_partner_is_considered_however_many_are_cheaper() -> None:
    far = [replica(f"d{i}", node_id="b") for i in range(4)]
    desk = Desk([replica("p", node_id="a"), *far, replica("dear", node_id="a")])
    desk.busy("dear", 2)
    pairs = {each.decode for each in desk.explain(prompt(641)) if each.prefill == "p"}
    assert pairs == {"d0", "d1", "dear"}
