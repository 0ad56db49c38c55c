"""How many replicas both pools should have: what lending cannot give, after a while, within bounds, with a reason."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cluster.pools.member import Member
from cluster.pools.needs import NeedsEstimate
from cluster.pools.scaling import Band, Scaler, ScalingSettings, Sharing, Targets, apart, together
from cluster.pools.settings import LendingSettings
from cluster.pools.split import Split
from routing.fleet import Role
from routing.rates import Rates
from tests.unit.pools.members import PROFILE, computing, decoding, member

UP_S, DOWN_S = 10.0, 300.0
SPLITS = st.builds(Split, st.integers(1, 8), st.integers(1, 8))
QUIET = [member("p", Role.PREFILL), member("d", Role.DECODE)]
BUSY = [member("p", Role.PREFILL, computing(100_000)), member("d", Role.DECODE, decoding(60))]


def scaler(most: Split, spares: int = 0, sharing: Sharing = together) -> Scaler:
    lending = LendingSettings(ttft_target_s=2.0, itl_target_s=0.020, smoothing_s=0.1)
    settings = ScalingSettings(Split(1, 1), most, spares, UP_S, DOWN_S)
    return Scaler(settings, NeedsEstimate(lending, Rates(PROFILE)), sharing)


def after(scaling: Scaler, members: Sequence[Member], there: Split, from_s: float, to_s: float) -> list[Targets]:
    """What it says each second."""
    return [scaling.decide(members, there, from_s + second) for second in range(int(to_s - from_s) + 1)]


def test_both_pools_grow_together_when_both_are_short_for_a_while_and_say_why() -> None:
    said = after(scaler(Split(4, 4)), BUSY, Split(1, 1), 0, UP_S)
    assert {targets.replicas for targets in said[:-1]} == {Split(1, 1)}
    assert said[-1].replicas.prefill > 1
    assert said[-1].replicas.decode > 1
    assert said[-1].why.startswith(f"1P1D to {said[-1].replicas} started: prefill has work for")


def test_a_short_burst_starts_nothing() -> None:
    scaling = scaler(Split(4, 4))
    assert {t.replicas for t in after(scaling, BUSY, Split(1, 1), 0, UP_S - 2)} == {Split(1, 1)}
    assert {t.replicas for t in after(scaling, QUIET, Split(1, 1), UP_S - 1, UP_S + 20)} == {Split(1, 1)}
    assert scaling.decide(BUSY, Split(1, 1), UP_S + 21).replicas == Split(1, 1)


def test_nothing_starts_while_lending_has_room() -> None:
    """One pool is short, the other idle: whoever is idle can be lent, unless nobody is."""
    members = [*(member(f"p{i}", Role.PREFILL) for i in range(4)), member("d", Role.DECODE, decoding(20))]
    assert {t.replicas for t in after(scaler(Split(8, 8)), members, Split(4, 1), 0, 60)} == {Split(4, 1)}
    said = after(scaler(Split(8, 8), sharing=apart), members, Split(4, 1), 0, UP_S)
    assert said[-1].replicas.prefill == 4
    assert said[-1].replicas.decode > 1


def test_idle_replicas_go_after_long_and_no_more_than_were_idle_all_the_time() -> None:
    scaling = scaler(Split(4, 4))
    busier = [*QUIET, member("d2", Role.DECODE, decoding(30))]
    after(scaling, QUIET, Split(4, 4), 0, 200)
    after(scaling, busier, Split(4, 4), 201, 210)
    said = after(scaling, QUIET, Split(4, 4), 211, DOWN_S)
    assert {t.replicas for t in said[:-1]} == {Split(4, 4)}
    left = said[-1].replicas
    assert 2 < left.prefill + left.decode < 8
    assert after(scaling, QUIET, left, DOWN_S + 1, 2 * DOWN_S + 1)[-1].replicas == Split(1, 1)


def test_spares_are_kept_idle() -> None:
    said = after(scaler(Split(4, 4), spares=2), QUIET, Split(4, 4), 0, DOWN_S)
    assert said[-1].replicas == Split(2, 2)


@given(SPLITS, SPLITS, SPLITS, st.sampled_from([together, apart]))
def test_a_step_goes_one_way_and_stops_where_it_should(there: Split, few: Split, more: Split, sharing: Sharing) -> None:
    many = Split(few.prefill + more.prefill, few.decode + more.decode)
    wanted = sharing(there, Band(few, many))
    grew = wanted.prefill > there.prefill or wanted.decode > there.decode
    shrank = wanted.prefill < there.prefill or wanted.decode < there.decode
    assert not (grew and shrank)
    assert wanted.prefill <= max(there.prefill, few.prefill)
    assert wanted.decode <= max(there.decode, few.decode)
    assert wanted.prefill + wanted.decode >= min(there.prefill + there.decode, few.prefill + few.decode)
    if grew:
        assert sharing(wanted, Band(few, many)) == wanted or sharing is apart
