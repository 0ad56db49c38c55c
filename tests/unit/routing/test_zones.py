"""Nodes of one zone are near each other: blocks take longer between zones, which is a cost like any other."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from routing.fleet import Fleet, Replica
from routing.index import Tier
from routing.kv_aware import KvAwareSettings
from routing.router import Fetch
from tests.unit.routing.fleets import PROFILE, Desk, candidate, prompt, replica

FAR = 3.0
REMOTE_S = PROFILE.remote_latency_s + PROFILE.kv_bytes_per_token / PROFILE.remote_bytes_per_s * 640
"""A last chunk of 640 tokens from another node of the zone."""


def desk(sites: Mapping[str, str], **changes: object) -> Desk:
    """Replicas by where they are, written `zone/node`."""
    return Desk([at(name, site, **changes) for name, site in sites.items()], KvAwareSettings(far_factor=FAR))


def at(name: str, site: str, **changes: object) -> Replica:
    return replica(name, zone=site.split("/")[0], node_id=site, **changes)


def test_the_transfer_of_a_hand_off_costs_more_the_further_it_goes() -> None:
    found = desk({"p": "east/1", "d same": "east/1", "d near": "east/2", "d far": "west/3"}).explain(prompt(641))
    same, near, far = (candidate(found, f"d {where}", "p").predicted.load_s for where in ("same", "near", "far"))
    assert near - same == pytest.approx(REMOTE_S)
    assert far - same == pytest.approx(FAR * REMOTE_S)


def test_decode_is_placed_on_the_node_of_its_prefill_else_in_its_zone_else_anywhere() -> None:
    fleet = desk({"p": "east/1", "d same": "east/1", "d near": "east/2", "d far": "west/3"})
    for name in ("d same", "d near", "d far"):
        fleet.busy(name, 2)
    placed = []
    for _ in range(3):
        decision = fleet.route(prompt(2001))
        placed.append((decision.prefill, decision.decode))
        fleet.fleet = Fleet({i: each for i, each in fleet.fleet.replicas.items() if i != decision.decode})
    assert placed == [("p", "d same"), ("p", "d near"), ("p", "d far")]


def test_a_partner_in_the_zone_is_considered_however_many_are_cheaper_elsewhere() -> None:
    fleet = desk({"p": "east/1", **{f"d{i}": f"west/{i}" for i in range(2, 6)}, "dear": "east/6"})
    fleet.busy("dear", 2)
    pairs = [each.decode for each in fleet.explain(prompt(641)) if each.prefill == "p"]
    assert sorted(pairs) == ["d2", "d3", "dear"]


def test_a_busy_partner_nearby_is_left_for_an_idle_one_far_away() -> None:
    fleet = desk({"p": "east/1", "d near": "east/1", "d far": "west/2"})
    fleet.busy("d near", 60)
    assert fleet.route(prompt(2001)).decode == "d far"


def test_of_stores_that_hold_as_much_the_one_in_the_zone_is_asked() -> None:
    fleet = desk({"d0": "east/1", "d1": "west/2", "d2": "east/3", "d3": "west/4"})
    for name in ("d0", "d1"):
        fleet.hold(name, 3200, Tier.HOST)
    found = {each.decode: each for each in fleet.explain(prompt(3230))}
    assert {name: source(found[name].fetch) for name in found} == {"d0": "", "d1": "", "d2": "east/1", "d3": "west/2"}


def test_a_fetch_from_another_zone_is_worth_less() -> None:
    found = {}
    for zone in ("east", "west"):
        fleet = desk({"d0": "east/1", "d1": f"{zone}/2"})
        fleet.hold("d0", 3200, Tier.HOST)
        found[zone] = candidate(fleet.explain(prompt(3230)), "d1")
        assert source(found[zone].fetch) == "east/1"
    far_s, near_s = (found[zone].predicted.load_s - PROFILE.load_s(3200) for zone in ("west", "east"))
    assert far_s == pytest.approx(FAR * near_s)


def test_a_node_that_moves_to_another_zone_is_noticed() -> None:
    fleet = desk({"p": "east/1", "d0": "east/2", "d1": "west/3"})
    before = candidate(fleet.explain(prompt(641)), "d1", "p").predicted.load_s
    fleet.fleet = Fleet({**fleet.fleet.replicas, "d1": replace(fleet.fleet.replicas["d1"], zone="east")})
    after = candidate(fleet.explain(prompt(641)), "d1", "p").predicted.load_s
    assert before - after == pytest.approx((FAR - 1) * REMOTE_S)


def source(fetch: Fetch | None) -> str:
    return "" if fetch is None else fetch.node_id
