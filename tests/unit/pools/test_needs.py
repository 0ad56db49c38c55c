"""What the roles need, from reports whose answer can be worked out by hand."""

from math import inf

import pytest

from cluster.pools.member import Member
from cluster.pools.needs import BUSY, FULL, KEPT, Needs, NeedsEstimate
from cluster.pools.settings import LendingSettings
from cluster.pools.split import Split
from routing.fleet import ReplicaLoad, Role
from routing.rates import Rates
from tests.unit.pools.members import PROFILE, computing, decoding, member

ITL_S = 0.020
LONG_S = 60.0


def after_long(*members: Member, itl_s: float = ITL_S) -> Needs:
    """What is needed once reports have been the same for a while."""
    estimate = NeedsEstimate(LendingSettings(ttft_target_s=2.0, itl_target_s=itl_s), Rates(PROFILE))
    estimate.observe(members, 0.0)
    return estimate.observe(members, LONG_S)


def test_nothing_to_do_needs_nobody() -> None:
    assert after_long(member("p", Role.PREFILL), member("d", Role.DECODE)).shortage(Split(1, 1)) == 0.0


def test_a_busy_prefill_replica_is_needed_at_the_share_of_time_it_should_be_busy() -> None:
    needs = after_long(member("p0", Role.PREFILL, computing(100)), member("p1", Role.PREFILL))
    assert needs.prefill == pytest.approx(1 / BUSY)


def test_what_waits_must_be_done_within_the_target() -> None:
    needs = after_long(member("p", Role.PREFILL, computing(100_000)))
    assert needs.prefill == pytest.approx(10.0 / (KEPT * 2.0))


def test_work_that_only_piles_up_arrives_as_well() -> None:
    estimate = NeedsEstimate(LendingSettings(ttft_target_s=inf), Rates(PROFILE))
    for second in range(60):  # two seconds of work more each second, than the one that is done
        needs = estimate.observe([member("p", Role.PREFILL, computing(20_000 * second))], second)
    assert needs.prefill == pytest.approx(3 / BUSY)


def test_decode_need_is_the_same_however_many_share_the_work() -> None:
    """400 tokens a second: one replica has them in steps of 8⅓ ms, a batch of 3⅓; two in batches of one."""
    target_s = KEPT * ITL_S
    expected = 0.4 * target_s / (target_s - PROFILE.decode_step_s)
    two = after_long(*(member(f"d{i}", Role.DECODE, ReplicaLoad(running=1)) for i in range(2)))
    assert two.decode == pytest.approx(expected * (2 / 6) / 0.4)
    three, four = (after_long(member("d", Role.DECODE, ReplicaLoad(running=n))).decode for n in (3, 4))
    assert three < expected < four


def test_a_batch_that_is_too_large_has_to_be_brought_below_the_target() -> None:
    needs = after_long(member("d", Role.DECODE, decoding(48)))
    assert (needs.decode, needs.bound) == (pytest.approx(0.048 / (KEPT * ITL_S - 0.005)), "ITL")


def test_without_a_target_the_blocks_count() -> None:
    needs = after_long(member("d", Role.DECODE, decoding(48, 0.99)), itl_s=inf)
    assert (needs.decode, needs.bound) == (pytest.approx(0.99 / FULL), "KV blocks")


def test_a_target_no_number_of_replicas_could_keep_asks_for_none() -> None:
    assert after_long(member("d", Role.DECODE, decoding(48)), itl_s=0.005).bound == "KV blocks"


def test_requests_that_wait_for_room_count_as_if_they_had_it() -> None:
    load = ReplicaLoad(running=50, waiting=50, kv_usage=0.9)
    assert after_long(member("d", Role.DECODE, load), itl_s=inf).decode == pytest.approx(2.0)
