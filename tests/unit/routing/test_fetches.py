"""Blocks of another node's store: fetched where that is sooner than computing, never from who cannot be asked."""

from dataclasses import replace

import pytest

from routing.fleet import Fleet
from routing.index import Tier
from routing.router import Fetch
from tests.unit.routing.fleets import PROFILE, Desk, candidate, prompt, replica

TOKEN_S = PROFILE.kv_bytes_per_token / PROFILE.remote_bytes_per_s


def fetch_s(tokens: int) -> float:
    """From another node's store to this one's."""
    return PROFILE.remote_latency_s + tokens * TOKEN_S


def two_nodes(held: int) -> Desk:
    """Two decode replicas on two nodes; the store of node a has the first `held` tokens of every prompt."""
    desk = Desk([replica("d0", node_id="a"), replica("d1", node_id="b")])
    desk.hold("d0", held, Tier.HOST)
    return desk


def without(desk: Desk, replica_id: str) -> Desk:
    """The same, where that replica takes no more work."""
    gone = replace(desk.fleet.replicas[replica_id], ready=False)
    desk.fleet = Fleet({**desk.fleet.replicas, replica_id: gone})
    return desk


def test_a_replica_fetches_what_another_node_has() -> None:
    found = candidate(two_nodes(3200).explain(prompt(3230)), "d1")
    assert found.predicted.computed_tokens == 30
    assert found.predicted.load_s == pytest.approx(fetch_s(3200) + PROFILE.load_s(3200))
    saved_s = PROFILE.prefill_s(3230) - PROFILE.prefill_s(30, 3200)
    assert found.fetch == Fetch("a", 0, 3200, pytest.approx(saved_s, rel=0.05))


def test_only_what_lies_nowhere_near_is_fetched_and_all_of_it_is_loaded() -> None:
    desk = two_nodes(3200)
    desk.hold("d1", 1600)
    desk.hold("d1", 2400, Tier.HOST)
    found = candidate(desk.explain(prompt(3230)), "d1")
    assert found.fetch is not None
    assert (found.fetch.start_tokens, found.fetch.end_tokens) == (2400, 3200)
    assert found.predicted.load_s == pytest.approx(fetch_s(800) + PROFILE.load_s(1600))


def test_few_blocks_are_sooner_computed_than_fetched() -> None:
    desk = two_nodes(64)
    found = candidate(desk.explain(prompt(80)), "d1")
    assert (found.fetch, found.predicted.computed_tokens) == (None, 80)


def test_a_busy_owner_gives_its_blocks_to_an_idle_replica() -> None:
    desk = two_nodes(6400)
    desk.busy("d0", 60)
    decision = desk.route(prompt(6450))
    assert decision.decode == "d1"
    assert decision.fetch is not None
    assert decision.fetch.node_id == "a"
    assert "have come from node a" in decision.why


def test_a_prefill_replica_fetches_as_well() -> None:
    desk = Desk([replica("p", node_id="b"), replica("d", node_id="a")])
    desk.hold("d", 6400, Tier.HOST)
    found = candidate(desk.explain(prompt(12_800)), "d", "p")
    assert found.fetch is not None
    assert (found.fetch.node_id, found.fetch.end_tokens) == ("a", 6400)


def test_the_node_that_has_most_is_asked() -> None:
    desk = Desk([replica(f"d{i}", node_id=f"n{i}") for i in range(4)])
    for number, held in enumerate((1600, 4800, 3200)):
        desk.hold(f"d{number}", held, Tier.HOST)
    found = desk.explain(prompt(6000))
    fetched = {each.decode: each.fetch.node_id for each in found if each.fetch is not None}
    assert fetched == {"d0": "n1", "d2": "n1", "d3": "n1"}


def test_nothing_is_fetched_from_a_replica_that_is_not_heard_of() -> None:
    desk = two_nodes(3200)
    desk.index.degrade("d0")
    assert candidate(desk.explain(prompt(3230)), "d1").fetch is None


def test_nothing_is_fetched_from_a_replica_that_is_gone() -> None:
    desk = two_nodes(3200)
    desk.index.drop("d0")
    assert candidate(desk.explain(prompt(3230)), "d1").fetch is None


def test_the_store_of_a_replica_that_drains_is_read_though_it_is_given_no_work() -> None:
    desk = without(two_nodes(3200), "d0")
    (only,) = desk.explain(prompt(3230))
    assert (only.decode, only.fetch and only.fetch.node_id) == ("d1", "a")


def test_nothing_is_fetched_that_does_not_fit() -> None:
    for other in ({"kv_fingerprint": "g"}, {"block_size_tokens": 32}):
        desk = Desk([replica("d0", node_id="a", **other), replica("d1", node_id="b")])
        desk.hold("d0", 3200, Tier.HOST)
        assert candidate(desk.explain(prompt(3230)), "d1").fetch is None


def test_of_two_versions_on_one_node_each_has_a_store_of_its_own() -> None:
    versions = [replica("old", node_id="a"), replica("new", node_id="a", kv_fingerprint="g")]
    desk = Desk([*versions, replica("old far", node_id="b"), replica("new far", node_id="b", kv_fingerprint="g")])
    desk.hold("old", 3200, Tier.HOST)
    found = desk.explain(prompt(3230))
    assert candidate(found, "old").predicted.cached_tokens == 3200
    assert candidate(found, "new").predicted.cached_tokens == 0
    assert candidate(found, "old far").fetch is not None
    assert candidate(found, "new far").fetch is None


def test_an_engine_is_told_not_to_load_what_it_computes_sooner() -> None:
    desk = Desk([replica("d")])
    desk.hold("d", 16, Tier.HOST)
    assert desk.route(prompt(20)).load_limit_tokens == 0
    desk.hold("d", 3200, Tier.HOST)
    assert desk.route(prompt(3230)).load_limit_tokens is None
    assert desk.route(prompt(3230, keys=prompt(20).keys)).load_limit_tokens == 0
