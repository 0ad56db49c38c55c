"""The simulation's own clock."""

import asyncio

import pytest

from tests.simulation.virtual_clock import Deadlock, run_virtual


def test_an_hour_passes_at_once_and_timers_fire_in_order() -> None:
    order: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(sleep("hour", 3600.0), sleep("second", 1.0), sleep("minute", 60.0))

    run_virtual(main())
    assert order == [("second", 1.0), ("minute", 60.0), ("hour", 3600.0)]


def test_a_program_that_waits_for_ever_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(main())


def test_what_a_timer_raises_is_not_lost() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1.0, lambda: 1 / 0)
        await asyncio.sleep(2.0)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main())
