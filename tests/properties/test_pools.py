"""The pool controller, whatever is reported to it, and in a cluster of which only the sums are modelled."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.pools.controller import PoolController, split_of
from cluster.pools.member import Member
from cluster.pools.settings import LendingSettings
from routing.fleet import ReplicaLoad, Role
from routing.rates import Rates
from tests.unit.pools.members import PROFILE, member

SETTINGS = LendingSettings(ttft_target_s=2.0, itl_target_s=0.020)
TICK_S = 0.25
JOB_S = 0.2
TOKENS = 200
LOADS = st.builds(
    ReplicaLoad,
    running=st.integers(0, 300),
    waiting=st.integers(0, 50),
    queued_prefill_tokens=st.integers(0, 200_000),
    kv_usage=st.floats(0.0, 1.0),
)


@dataclass(frozen=True)
class Traffic:
    """Seconds of prefill, and of decode steps beyond their fixed part, that come each second."""

    prefill: float
    decode: float


class Cluster:
    """Prompts of `JOB_S` and answers of `TOKENS`, spread evenly. Roles change as the controller says."""

    def __init__(self, prefill: int, decode: int, seed: int) -> None:
        self.members = [member(f"p{i}", Role.PREFILL) for i in range(prefill)]
        self.members += [member(f"d{i}", Role.DECODE) for i in range(decode)]
        self.controller = PoolController(SETTINGS, Rates(PROFILE))
        self._rng = random.Random(seed)
        self._now = self._backlog_s = self._answers = 0.0
        self._busy = 0

    def run(self, traffic: Traffic, seconds: float) -> list[float]:
        """When it was changed, from the beginning of this."""
        start_s, changed = self._now, []
        while self._now < start_s + seconds:
            self._serve(traffic)
            made = {one.replica_id: one.role for one in self.controller.decide(self._reports(), self._now)}
            self.members = [with_role(each, made.get(each.replica.replica_id, each.role)) for each in self.members]
            if made:
                changed.append(self._now - start_s)
            self._now += TICK_S
        return changed

    def _serve(self, traffic: Traffic) -> None:
        split = split_of(self.members)
        self._backlog_s += JOB_S * self._arrivals(traffic.prefill / JOB_S)
        computed_s = min(self._backlog_s, TICK_S * split.prefill)
        self._backlog_s -= computed_s
        self._busy = round(computed_s / TICK_S)
        each = self._answers / split.decode
        step_s = PROFILE.step_s(each, 0.0)
        self._answers += self._arrivals(traffic.decode / PROFILE.decode_request_s / TOKENS)
        self._answers -= min(self._answers, TICK_S * each * split.decode / step_s / TOKENS)

    def _arrivals(self, per_s: float) -> int:
        """In a tick, at random."""
        count, left_s = 0, TICK_S
        while per_s and (left_s := left_s - self._rng.expovariate(per_s)) > 0:
            count += 1
        return count

    def _reports(self) -> list[Member]:
        split = split_of(self.members)
        tokens = round(self._backlog_s / split.prefill / PROFILE.prefill_token_s)
        busy = [max(1, tokens)] * self._busy + [tokens] * split.prefill
        prefill = (ReplicaLoad(queued_prefill_tokens=each) for each in busy)
        decode = ReplicaLoad(running=round(self._answers / split.decode))
        return [with_load(one, decode if one.role is Role.DECODE else next(prefill)) for one in self.members]


def with_load(one: Member, load: ReplicaLoad) -> Member:
    return replace(one, replica=replace(one.replica, load=load))


def with_role(one: Member, role: Role) -> Member:
    return replace(one, replica=replace(one.replica, role=role))


@st.composite
def traffic(draw: st.DrawFn, most: float = 1.2) -> Traffic:
    """Up to `most` times what eight replicas can do."""
    prefill = draw(st.floats(0.0, 8.0 * most))
    return Traffic(prefill, draw(st.floats(0.0, max(0.0, 8.0 * most - prefill))))


@given(traffic(), st.integers(1, 7), st.integers(0, 1000))
@settings(max_examples=6, deadline=None, derandomize=True)  # of some hundred loads one moves twice: lending.md
def test_at_steady_load_there_is_at_most_one_change_a_minute(load: Traffic, prefill: int, seed: int) -> None:
    cluster = Cluster(prefill, 8 - prefill, seed)
    cluster.run(load, 60.0)
    assert windows(cluster.run(load, 180.0)) <= 1


@given(st.sampled_from([(4.0, 0.3), (0.4, 3.5), (2.0, 2.0), (0.2, 0.1)]), st.integers(1, 7), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_after_a_shift_the_ratio_suits_within_seconds(sums: tuple[float, float], prefill: int, seed: int) -> None:
    cluster = Cluster(prefill, 8 - prefill, seed)
    cluster.run(Traffic(*sums), 15.0)
    split = split_of(cluster.members)
    assert split.prefill >= sums[0]
    assert split.decode >= sums[1] / (1 - PROFILE.decode_step_s / SETTINGS.itl_target_s)


@given(st.lists(st.lists(LOADS, min_size=6, max_size=6), min_size=1, max_size=200), st.data())
@settings(max_examples=50, deadline=None)
def test_whatever_is_reported_floors_and_pins_hold_and_changes_are_few(
    reports: Sequence[Sequence[ReplicaLoad]], data: st.DataObject
) -> None:
    floors = data.draw(st.tuples(st.integers(0, 3), st.integers(1, 3)), "floors")
    pinned = data.draw(st.sets(st.integers(0, 5)), "pinned")
    controller = PoolController(replace(SETTINGS, prefill_floor=floors[0], decode_floor=floors[1]), Rates(PROFILE))
    roles = [Role.PREFILL] * 3 + [Role.DECODE] * 3
    turns, way, changed_at = 0, None, float("-inf")
    for tick, loads in enumerate(reports):
        members = [member(str(i), roles[i], loads[i], pinned=i in pinned) for i in range(6)]
        changes = controller.decide(members, float(tick))
        for change in changes:
            assert int(change.replica_id) not in pinned
            assert change.why
            assert roles[int(change.replica_id)] is not change.role
            roles[int(change.replica_id)] = change.role
        assert roles.count(Role.PREFILL) >= floors[0]
        assert roles.count(Role.DECODE) >= floors[1]
        if changes:
            turns += changes[0].role is not way or tick >= changed_at + SETTINGS.cooldown_s
            way, changed_at = changes[0].role, float(tick)
    assert turns <= SETTINGS.turns + len(reports) / SETTINGS.turn_every_s


def windows(changed: Sequence[float]) -> int:
    """The most changes in any minute."""
    return max((sum(at <= other < at + 60.0 for other in changed) for at in changed), default=0)
