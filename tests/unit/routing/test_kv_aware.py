"""Which placement `KvAware` finds cheapest, and what it predicts of it."""

from collections import Counter
from dataclasses import replace

import pytest

from routing.errors import NoCandidate
from routing.fleet import ReplicaLoad, Role
from routing.index import Tier
from routing.kv_aware import KvAwareSettings
from routing.rates import Decoded, Prefilled
from routing.router import Decision, Work
from tests.unit.routing.fleets import PROFILE, Desk, candidate, prompt, replica


def placed(desk: Desk, tokens: int, **changes: object) -> tuple[str | None, str]:
    decision = desk.route(prompt(tokens, **changes))
    return decision.prefill, decision.decode


def test_a_long_cold_prompt_is_disaggregated_and_a_short_one_is_not() -> None:
    desk = Desk([replica("p"), replica("d")])
    assert placed(desk, 4000) == ("p", "d")
    assert placed(desk, 40) == (None, "d")


def test_a_short_uncached_suffix_is_computed_where_the_rest_is_cached() -> None:
    desk = Desk([replica("p0"), replica("p1"), replica("d0"), replica("d1")])
    desk.hold("d1", 4000)
    decision = desk.route(prompt(4030))
    assert (decision.prefill, decision.decode) == (None, "d1")
    assert decision.predicted is not None
    assert (decision.predicted.computed_tokens, decision.predicted.cached_tokens) == (30, 4000)


def test_a_long_prompt_goes_to_the_prefill_replica_that_has_it() -> None:
    desk = Desk([replica(f"{role}{i}") for role in "pd" for i in range(4)])
    desk.hold("p2", 4000)
    decision = desk.route(prompt(6000))
    assert decision.prefill == "p2"
    assert decision.predicted is not None
    assert decision.predicted.cached_tokens == 4000


def test_the_last_block_is_never_credited() -> None:
    desk = Desk([replica("d")])
    desk.hold("d", 160)
    decision = desk.route(prompt(160))
    assert decision.predicted is not None
    assert (decision.predicted.computed_tokens, decision.predicted.cached_tokens) == (16, 144)


def test_without_a_fit_prefill_replica_decode_computes_the_prompt() -> None:
    long = 4000
    for other in (
        [],
        [replica("p", ready=False)],
        [replica("p", kv_fingerprint="other")],
        [replica("p", max_model_len=long)],
    ):
        assert placed(Desk([*other, replica("d")]), long) == (None, "d")
    desk = Desk([replica("p"), replica("d")])
    assert placed(desk, long, exclude=frozenset({"p"})) == (None, "d")
    assert placed(desk, long, may_disaggregate=False) == (None, "d")


def test_blocks_in_the_nodes_store_are_loaded_where_that_beats_computing() -> None:
    desk = Desk([replica("d0", node_id="a"), replica("d1", node_id="b")])
    desk.hold("d0", 3200, Tier.HOST)
    decision = desk.route(prompt(3230))
    assert decision.predicted is not None
    assert (decision.decode, decision.predicted.computed_tokens) == ("d0", 30)
    assert decision.predicted.load_s == pytest.approx(PROFILE.load_s(3200))
    few = Desk([replica("d0")])
    few.hold("d0", 16, Tier.HOST)
    assert candidate(few.explain(prompt(20)), "d0").predicted.computed_tokens == 20


def test_a_replica_of_the_same_node_shares_the_store() -> None:
    desk = Desk([replica("d0", node_id="a"), replica("d1", node_id="a"), replica("d2", node_id="b")])
    desk.hold("d0", 3200, Tier.HOST)
    found = desk.explain(prompt(3230))
    assert candidate(found, "d1").predicted == candidate(found, "d0").predicted
    assert candidate(found, "d2").predicted.load_s > candidate(found, "d1").predicted.load_s


def test_decode_on_the_same_node_as_prefill_needs_no_transfer() -> None:
    desk = Desk([replica("p", node_id="a"), replica("d0", node_id="a"), replica("d1", node_id="b")])
    found = desk.explain(prompt(4000))
    near, far = candidate(found, "d0", "p").predicted, candidate(found, "d1", "p").predicted
    last_chunk_s = 2048 * PROFILE.kv_bytes_per_token / PROFILE.remote_bytes_per_s
    assert far.load_s - near.load_s == pytest.approx(PROFILE.remote_latency_s + last_chunk_s)
    assert near.load_s == pytest.approx(PROFILE.load_s(3984))
    assert placed(desk, 4000) == ("p", "d0")


def test_what_decode_has_on_its_device_or_node_is_not_moved() -> None:
    desk = Desk([replica("p", node_id="a"), replica("d0", node_id="b"), replica("d1", node_id="c")])
    desk.hold("p", 4000)
    desk.hold("d0", 4000)
    desk.hold("d1", 4000, Tier.HOST)
    found = desk.explain(prompt(4016))
    assert candidate(found, "d0", "p").predicted.load_s == 0.0
    assert candidate(found, "d1", "p").predicted.load_s == pytest.approx(PROFILE.load_s(4000))


def test_a_prompt_in_flight_counts_as_cached_after_the_work_in_front_of_it() -> None:
    desk = Desk([replica("p0"), replica("p1"), replica("d0"), replica("d1")])
    first, _ = desk.place(prompt(4000))
    again = desk.route(prompt(4000))
    assert (first.prefill, again.prefill) == (again.prefill, first.prefill)
    assert first.predicted is not None
    assert again.predicted is not None
    assert again.predicted.computed_tokens == 16
    assert again.predicted.queue_s == pytest.approx(first.predicted.compute_s, rel=0.05)


def test_a_lease_that_ends_before_its_prompt_promises_nothing_any_more() -> None:
    desk = Desk([replica("p0"), replica("d0")])
    _, lease = desk.place(prompt(4000))
    desk.ledger.release(lease, desk.now)
    decision = desk.route(prompt(4000))
    assert decision.predicted is not None
    assert (decision.predicted.cached_tokens, decision.predicted.queue_s) == (0, 0.0)


def test_a_queue_drains_while_nothing_is_reported() -> None:
    desk = Desk([replica("d")])
    desk.place(prompt(4000))
    before = desk.route(prompt(2000)).predicted
    desk.now = 0.3
    after = desk.route(prompt(2000)).predicted
    assert before is not None
    assert after is not None
    assert before.queue_s - after.queue_s == pytest.approx(0.3)


def test_other_gateways_prompts_wait_in_front() -> None:
    loaded = ReplicaLoad(others_requests=1, others_prefill_tokens=3000)
    desk = Desk([replica("d0", load=loaded), replica("d1")])
    assert placed(desk, 500) == (None, "d1")
    assert candidate(desk.explain(prompt(500)), "d0").predicted.queue_s > 0.3


def test_running_requests_make_a_decode_replica_dear() -> None:
    desk = Desk([replica("d0"), replica("d1")])
    desk.busy("d0", 3)
    assert placed(desk, 500) == (None, "d1")


def test_replicas_that_would_break_the_itl_target_are_chosen_last() -> None:
    def desk(busy: int) -> Desk:
        made = Desk([replica("d0"), replica("d1")], KvAwareSettings(itl_target_s=0.0125))
        made.hold("d0", 8000)
        made.busy("d0", 12)
        made.busy("d1", busy)
        return made

    assert placed(desk(0), 8010) == (None, "d1")
    assert placed(desk(30), 8010) == (None, "d0")


def test_replicas_without_room_for_the_blocks_are_chosen_last() -> None:
    full = replica("d0", load=ReplicaLoad(kv_usage=0.9))
    desk = Desk([full, replica("d1")])
    desk.hold("d0", 8000)
    desk.busy("d1", 1)
    assert placed(desk, 16_000, max_tokens=10) == (None, "d1")
    assert placed(Desk([full]), 16_000, max_tokens=10) == (None, "d0")


def test_block_sizes_may_differ_between_replicas() -> None:
    desk = Desk([replica("d0", block_size_tokens=16), replica("d1", block_size_tokens=64, kv_fingerprint="g")])
    desk.hold("d1", 6400)
    decision = desk.route(prompt(6500))
    assert decision.predicted is not None
    assert (decision.decode, decision.predicted.cached_tokens) == ("d1", 6400)


def test_equal_replicas_take_turns_whoever_begins() -> None:
    firsts = Counter[str]()
    for seed in range(40):
        desk = Desk([replica(f"d{i}") for i in range(4)], seed=seed)
        given = []
        for _ in range(8):
            decision, lease = desk.place(prompt(100))
            desk.ledger.release(lease)
            given.append(decision.decode)
        assert sorted(given[:4]) == sorted(given[4:]) == ["d0", "d1", "d2", "d3"]
        firsts[given[0]] += 1
    assert len(firsts) == 4


def test_the_chosen_placement_is_the_first_that_is_explained() -> None:
    desk = Desk([replica(f"{role}{i}", node_id=f"n{i}") for role in "pd" for i in range(3)])
    desk.hold("p1", 3000)
    desk.busy("d0", 2)
    for tokens in (40, 700, 3100):
        decision, found = desk.route(prompt(tokens)), desk.explain(prompt(tokens))
        assert found == sorted(found, key=lambda each: each.cost_s)
        assert decision.predicted == found[0].predicted
        assert {each.decode for each in found if each.prefill is None} == {"d0", "d1", "d2"}


def test_the_decision_says_why() -> None:
    desk = Desk([replica("p"), replica("d0"), replica("d1")])
    desk.busy("d1", 2)
    desk.hold("d0", 4000)
    assert desk.route(prompt(4030)).why == (
        "d0 computes the prompt itself: first token in 0.013 s (30 tokens to compute after 0.000 s of waiting), the "
        "cheapest at 0.542 s, 2.569 s less than the next"
    )


def test_nothing_is_chosen_when_no_decode_replica_is_fit() -> None:
    desk = Desk([replica("p"), replica("d", max_model_len=1000)])
    with pytest.raises(NoCandidate, match=r"has room for 1100 tokens \(at most 1000\)"):
        desk.route(prompt(1000))
    assert desk.explain(prompt(1000)) == []


def test_a_slower_replica_is_known_by_what_was_observed() -> None:
    desk = Desk([replica("d0"), replica("d1")])
    for _ in range(20):
        desk.rates.observe(Prefilled("d0", Role.DECODE, 2000, 0, 2 * PROFILE.prefill_s(2000)))
        desk.rates.observe(Prefilled("d1", Role.DECODE, 2000, 0, PROFILE.prefill_s(2000)))
    assert {placed(desk, 2000)[1] for _ in range(20)} == {"d1"}


def test_observed_decode_steps_change_the_prediction() -> None:
    desk = Desk([replica("d")])
    before = desk.route(prompt(100)).predicted
    for _ in range(20):
        desk.rates.observe(Decoded("d", Role.DECODE, 1, 100, 3 * PROFILE.step_s(1, 100)))
    desk.now = 1.0
    after = desk.route(prompt(100)).predicted
    assert before is not None
    assert after is not None
    assert after.itl_s == pytest.approx(3 * before.itl_s)


def test_a_report_replaces_what_was_assumed_of_others() -> None:
    desk = Desk([replica("d0"), replica("d1")])
    seen = replace(desk.fleet.replicas["d0"], load=ReplicaLoad(others_requests=8))
    desk.route(prompt(100))
    desk.fleet = type(desk.fleet)({"d0": seen, "d1": desk.fleet.replicas["d1"]})
    assert placed(desk, 100) == (None, "d1")


def test_who_was_lent_to_prefill_and_still_decodes_gets_prompts_last() -> None:
    """Each would stall the streams that are left; the other's queue is worth waiting for. Without them it is not."""
    lent = replica("d0", role=Role.PREFILL)
    desk = Desk([lent, replica("p"), replica("d1")])
    desk.ledger.reserve(Decision("d1", "p", "", work=Work(2000, 0.5, 1, 2000, 1)), prompt(2000), 0.0)
    assert placed(desk, 4000) == ("d0", "d1")
    desk.busy("d0", 20)
    assert placed(desk, 4000) == ("p", "d1")
