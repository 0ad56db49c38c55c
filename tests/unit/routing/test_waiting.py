"""Placements that wait for what another replica computes at this moment."""

import pytest

from routing.index import Tier
from routing.router import Decision
from tests.unit.routing.fleets import Desk, prompt, replica

TOKENS, BLOCKS = 4000, 249
EQUAL = prompt(TOKENS, may_wait=True)


def second(desk: Desk) -> Decision:
    """Where an equal prompt goes while the first is being computed on d0, where much is decoded."""
    desk.place(prompt(TOKENS, exclude=frozenset({"p0", "d1"})))
    return desk.route(EQUAL)


def pair(**changes: object) -> Desk:
    """Two decode replicas, the second with `changes`."""
    return Desk([replica("d0"), replica("d1", **changes)])


@pytest.mark.parametrize("node", ["n", "m"])
def test_an_equal_prompt_waits_and_loads_what_another_computes(node: str) -> None:
    desk = pair(node_id=node)
    desk.busy("d0", 20)
    decision = second(desk)
    assert decision.decode == "d1"
    assert decision.coming is not None
    assert (decision.coming.replica_id, decision.coming.store) == ("d0", desk.replicas[0].store)
    assert len(decision.coming.keys) == BLOCKS
    assert "once d0 has computed 249 blocks of it" in decision.why
    assert decision.predicted is not None
    assert decision.predicted.cached_tokens == BLOCKS * 16
    assert decision.predicted.queue_s == decision.coming.there_s > 0.4


def test_who_waits_promises_nothing_and_what_it_reserves_is_the_rest() -> None:
    desk = pair()
    desk.busy("d0", 20)
    decision = second(desk)
    lease = desk.ledger.reserve(decision, EQUAL, desk.now)
    assert desk.index.longest_prefix(EQUAL.keys.at(16), desk.now).promised == {"d0": 250}
    assert desk.ledger.load("d1").prefill_tokens == TOKENS - BLOCKS * 16
    desk.ledger.release(lease, desk.now)
    desk.ledger.check()


def test_who_may_not_wait_computes() -> None:
    desk = pair()
    desk.busy("d0", 20)
    desk.place(prompt(TOKENS, exclude=frozenset({"d1"})))
    assert desk.route(prompt(TOKENS)).coming is None


@pytest.mark.parametrize("changes", [{"kv_fingerprint": "g"}, {"block_size_tokens": 32}])
def test_nobody_waits_for_blocks_that_are_of_no_use(changes: dict[str, object]) -> None:
    desk = pair(**changes)
    desk.busy("d0", 20)
    assert second(desk).coming is None


def test_nobody_waits_for_a_replica_that_tells_of_no_store() -> None:
    desk = pair()
    desk.busy("d0", 20)
    desk.index.degrade("d0")
    desk.index.snapshot("d0", Tier.DEVICE, ())
    assert second(desk).coming is None


def test_nobody_waits_for_what_is_cached_already_and_not_stored() -> None:
    """What the device has of a prompt is not written to the store again."""
    desk = pair()
    desk.busy("d0", 20)
    desk.hold("d0", 1600)
    assert second(desk).coming is None


def test_nobody_waits_where_prefill_replicas_share_what_they_compute() -> None:
    desk = Desk([replica("p0"), replica("d0"), replica("d1")])
    desk.busy("d0", 20)
    assert second(desk).coming is None


def test_nobody_waits_when_the_prompt_is_computed_or_given_up() -> None:
    for end in (Desk.computed, Desk.given_up):
        desk = pair()
        desk.busy("d0", 20)
        _, lease = desk.place(prompt(TOKENS, exclude=frozenset({"d1"})))
        end(desk, lease)
        assert desk.route(EQUAL).coming is None


def test_a_short_prompt_is_sooner_computed_twice() -> None:
    desk = pair()
    desk.busy("d0", 20)
    desk.place(prompt(65, exclude=frozenset({"d1"})))
    assert desk.route(prompt(65, may_wait=True)).coming is None
