"""What one more request would wait for: prompts before it, a place in a batch, room on a device, steps in time."""

import pytest

from routing.kv_aware import KvAwareSettings
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from routing.router import Predicted
from tests.unit.routing.fleets import PROFILE, Desk, candidate, prompt, replica

PLACES = PROFILE.max_running
OUTPUT = 100


def desk(itl_target_s: float = float("inf"), **decode: object) -> Desk:
    return Desk([replica("p"), replica("d", **decode)], KvAwareSettings(itl_target_s))


def outlook(of: Desk) -> Predicted:
    """For a prompt that is computed in 10 ms and a half."""
    found = of.router.outlook(prompt(100, OUTPUT), of.fleet, of.now)
    assert found is not None
    return found


def life_s(batch: int, context: int) -> float:
    """Of a request in a batch of so many."""
    return OUTPUT * PROFILE.step_s(batch, context)


def test_an_idle_cluster_begins_at_once() -> None:
    assert (outlook(desk()).queue_s, outlook(desk()).room_s) == (0.0, 0.0)


def test_prompts_before_it_are_waited_for() -> None:
    its = desk()
    its.busy("d", PLACES - 2)
    first, _ = its.place(prompt(10_000))
    assert first.prefill == "p"
    assert outlook(its).queue_s == pytest.approx(PROFILE.prefill_s(10_000), rel=0.05)


def test_in_a_full_batch_places_become_free_evenly_over_a_life() -> None:
    its = desk()
    its.busy("d", PLACES - 1)
    assert outlook(its).room_s == 0.0
    its.busy("d", PLACES // 4 + 1)
    wait_s = life_s(PLACES, PLACES * 500) / 4
    assert outlook(its).room_s == pytest.approx(wait_s - PROFILE.prefill_s(100), rel=0.1)
    pair = candidate(its.explain(prompt(100, OUTPUT)), "d", "p").predicted
    alone = candidate(its.explain(prompt(100, OUTPUT)), "d").predicted
    assert pair.queue_s == pytest.approx(wait_s - PROFILE.prefill_s(100), rel=0.1)
    assert alone.queue_s == pytest.approx(wait_s, rel=0.1)


def test_a_place_that_is_free_before_the_prompt_is_computed_is_not_waited_for() -> None:
    its = desk()
    its.busy("d", PLACES)
    found = its.router.outlook(prompt(5_000, OUTPUT), its.fleet, its.now)
    assert found is not None
    assert (found.queue_s, found.room_s) == (0.0, 0.0)


def test_a_full_device_is_waited_for_like_a_full_batch() -> None:
    its = desk(kv_blocks=140)  # ten like this one
    assert outlook(its).room_s == 0.0
    for _ in range(15):
        _, lease = its.place(prompt(100, OUTPUT))
        its.ledger.prefill_done(lease, its.now)
    assert outlook(its).room_s == pytest.approx(0.6 * life_s(10, 10 * 150), rel=0.1)


def test_steps_that_are_too_long_are_no_room_but_a_seat() -> None:
    its = desk(itl_target_s=PROFILE.step_s(20, 20 * 500))
    its.busy("d", 19)
    assert outlook(its).room_s == 0.0
    its.busy("d", 11)
    assert outlook(its).room_s == pytest.approx(0.5 * life_s(20, 20 * 500), rel=0.1)
    assert candidate(its.explain(prompt(100, OUTPUT)), "d", "p").predicted.queue_s < 0.02


def test_a_target_that_nobody_can_keep_is_not_waited_for() -> None:
    its = desk(itl_target_s=PROFILE.decode_step_s / 2)
    its.busy("d", 3)
    assert outlook(its).room_s == 0.0


def test_the_next_replica_with_room_is_what_counts() -> None:
    its = Desk([replica("p"), replica("d0"), replica("d1")])
    its.busy("d0", 2 * PLACES)
    its.busy("d1", PLACES - 1)
    assert outlook(its).room_s == 0.0


def test_nobody_knows_where_nobody_can_take_it_or_nothing_is_predicted() -> None:
    its = desk()
    assert its.router.outlook(prompt(20_000), its.fleet, its.now) is None
    assert LeastWork(LeastWorkSettings(), Ledger()).outlook(prompt(100), its.fleet, its.now) is None
