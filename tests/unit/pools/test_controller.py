"""When replicas change sides, which, and what is said about it."""

from collections.abc import Sequence
from dataclasses import replace

from cluster.pools.best_split import best_split
from cluster.pools.controller import Change, PoolController, whom
from cluster.pools.member import Member
from cluster.pools.needs import Needs
from cluster.pools.settings import LendingSettings
from cluster.pools.split import Split
from routing.fleet import Role
from routing.rates import Rates
from tests.unit.pools.members import PROFILE, computing, decoding, member

SETTINGS = LendingSettings(ttft_target_s=2.0, itl_target_s=0.020)


def controller(settings: LendingSettings = SETTINGS) -> PoolController:
    return PoolController(settings, Rates(PROFILE))


def changes(of: PoolController, members: Sequence[Member], seconds: float, start_s: float = 0.0) -> list[Change]:
    """All that is changed while reports stay the same."""
    ticks = range(round(seconds / 0.25) + 1)
    return [change for tick in ticks for change in of.decide(members, start_s + tick * 0.25)]


def fleet(prefill: int, decode: int, batch: int = 0, waiting_tokens: int = 0) -> list[Member]:
    return [
        *(member(f"p{i}", Role.PREFILL, computing(waiting_tokens)) for i in range(prefill)),
        *(member(f"d{i}", Role.DECODE, decoding(batch)) for i in range(decode)),
    ]


def test_nobody_moves_while_targets_are_kept() -> None:
    assert changes(controller(), fleet(2, 6, batch=4), 120.0) == []


def test_decode_that_is_short_gets_replicas_within_seconds() -> None:
    made = changes(controller(), fleet(6, 2, batch=16), 1.0)
    assert [(change.replica_id, change.role) for change in made] == [("p0", Role.DECODE), ("p1", Role.DECODE)]
    assert made[0].why == "6P2D to 4P4D: prefill has work for 0.0 replicas, decode for 2.7 (ITL)"


def test_prefill_that_is_short_gets_replicas_within_seconds() -> None:
    made = changes(controller(), fleet(2, 6, batch=2, waiting_tokens=25_000), 3.0)
    assert {change.role for change in made} == {Role.PREFILL}


def test_a_moment_is_not_enough() -> None:
    of = controller()
    assert of.decide(fleet(6, 2, batch=24), 0.0) == []
    assert changes(of, fleet(6, 2), 10.0, start_s=0.25) == []


def test_nobody_moves_when_that_would_only_move_the_shortage() -> None:
    assert changes(controller(), fleet(2, 2, batch=24, waiting_tokens=50_000), 120.0) == []


def test_more_may_follow_the_same_way_at_once() -> None:
    of = controller()
    assert changes(of, fleet(6, 2, batch=16), 1.0)
    assert changes(of, fleet(4, 4, batch=16), 1.0, start_s=1.25)


def test_before_it_turns_it_waits_what_the_change_brings() -> None:
    of = controller(replace(SETTINGS, cooldown_s=10.0))
    assert changes(of, fleet(6, 2, batch=16), 1.0)
    assert changes(of, fleet(2, 6, batch=2, waiting_tokens=25_000), 9.5, start_s=1.25) == []
    assert changes(of, fleet(2, 6, batch=2, waiting_tokens=25_000), 1.0, start_s=11.0)


def test_floors_hold_however_short_the_other_role_is() -> None:
    made = changes(controller(replace(SETTINGS, prefill_floor=5)), fleet(6, 2, batch=200), 60.0)
    assert {change.replica_id for change in made} == {"p0"}


def test_who_is_pinned_or_not_ready_stays() -> None:
    members = [
        member("p0", Role.PREFILL, pinned=True),
        member("p1", Role.PREFILL, ready=False),
        member("p2", Role.PREFILL),
        member("d0", Role.DECODE, decoding(48)),
    ]
    assert {change.replica_id for change in changes(controller(), members, 60.0)} == {"p2"}


def test_those_that_come_home_go_first_then_those_with_least_to_finish() -> None:
    members = [
        member("d0", Role.DECODE, decoding(3)),
        member("d1", Role.DECODE, decoding(2)),
        member("p0", Role.DECODE, decoding(9), home=Role.PREFILL),
        member("p1", Role.PREFILL),
    ]
    assert [one.replica.replica_id for one in whom(members, Role.PREFILL)] == ["p0", "d1", "d0"]


def test_the_nearest_comfortable_ratio_is_the_best() -> None:
    needs = Needs(prefill=1.0, decode=3.0)
    assert best_split(needs, Split(6, 2), Split(1, 1)) == Split(3, 5)
    assert best_split(needs, Split(2, 6), Split(1, 1)) == Split(2, 6)
    assert best_split(Needs(prefill=4.0, decode=4.0), Split(2, 6), Split(1, 1)) == Split(4, 4)
    assert best_split(needs, Split(1, 1), Split(2, 2)) == Split(1, 1)
