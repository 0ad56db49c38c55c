"""A worker's role: its own, lent by whoever knew the latest, seen by every gateway."""

import asyncio
from itertools import count

import pytest

from cluster.dataplane.frames import Role, TakeRole
from cluster.workers.lent_role import REMEMBERED, LentRole, RoleChange
from routing.fleet import Role as RoutedRole
from tests.unit.dataplane.peers import DEADLINE_S
from tests.unit.workers.running import Running, leg, running_worker


def role(home: Role = "decode") -> LentRole:
    """One whose clock counts."""
    ticks = count(1)
    return LentRole(home, lambda: None, lambda: float(next(ticks)))


def test_an_order_is_taken_and_remembered_with_its_reason() -> None:
    lent = role()
    lent.take(TakeRole("prefill", 0, "short"))
    assert (lent.role, lent.home, lent.epoch) == ("prefill", "decode", 1)
    assert list(lent.history) == [RoleChange(1.0, "prefill", False, "short")]


def test_of_two_orders_that_knew_the_same_the_second_is_passed_by() -> None:
    lent = role()
    lent.take(TakeRole("prefill", 0, "one"))
    lent.take(TakeRole("decode", 0, "another"))
    assert (lent.role, lent.epoch) == ("prefill", 1)


def test_one_that_is_pinned_is_lent_by_hand_only() -> None:
    lent = role()
    lent.lend("prefill", True, "by hand")
    lent.take(TakeRole("decode", 1, "short"))
    assert lent.role == "prefill"
    lent.lend("prefill", False, "by hand")
    lent.take(TakeRole("decode", 2, "short"))
    assert lent.role == "decode"


def test_what_is_remembered_is_bounded() -> None:
    lent = role()
    for number in range(REMEMBERED + 5):
        lent.lend("prefill", False, str(number))
    assert len(lent.history) == REMEMBERED
    assert lent.history[-1].why == str(REMEMBERED + 4)


async def seen_as(running: Running, wanted: RoutedRole) -> None:
    """The gateway sees the worker do that. Raises `TimeoutError`."""
    await running.pool.wait_for(lambda fleet: fleet.replicas["w1"].role is wanted, DEADLINE_S)


async def test_gateways_see_the_role_at_once_and_what_runs_finishes() -> None:
    async with running_worker() as running:
        stream = running.open(leg())
        await running.engine.arrived("r1")
        running.pool.take_role("w1", TakeRole("prefill", running.pool.info("w1").role_epoch, "short"))
        await seen_as(running, RoutedRole.PREFILL)
        assert (running.pool.info("w1").home, running.pool.info("w1").role_epoch) == ("decode", 1)
        assert len(running.worker.role.history) == 1
        assert running.worker.live_legs == 1
        stream.close()


async def test_a_late_order_changes_nothing() -> None:
    async with running_worker() as running:
        running.worker.role.lend("prefill", False, "by hand")
        await seen_as(running, RoutedRole.PREFILL)
        running.pool.take_role("w1", TakeRole("decode", 0, "late"))
        running.pool.take_role("gone", TakeRole("decode", 0, "nobody"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await running.pool.wait_for(lambda fleet: fleet.replicas["w1"].role is RoutedRole.DECODE, DEADLINE_S)
