"""Deadlines, clients that dawdle or leave, ends that nobody fetches: nothing is held, in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from cluster.coordinator.lifecycle import State
from cluster.errors import (
    DeadlineExceeded,
)
from tests.simulation.fake_workers import Behaviour
from tests.simulation.virtual_clock import run_virtual
from tests.simulation.world import SETTINGS, Client, World, request
from tests.unit.coordinator.cases import answer, behave, in_virtual_time


@in_virtual_time
async def test_a_request_that_takes_too_long_fails_at_its_deadline() -> None:
    world = World(behave(d0=Behaviour(hangs=True)), prefills=0, decodes=1)
    client = await answer(world)
    assert isinstance(client.ending, DeadlineExceeded)
    assert world.clock() == pytest.approx(SETTINGS.request_s)


@in_virtual_time
async def test_a_client_that_dawdles_past_the_deadline_holds_nothing_and_is_told() -> None:
    world = World(behave(), prefills=0, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=500))
    await anext(stream)
    await asyncio.sleep(SETTINGS.request_s)
    assert not world.workers.streams
    assert world.ledger.statistics().open_leases == 0
    with pytest.raises(DeadlineExceeded, match="longer than 20 s"):
        await anext(stream)
    world.check_idle()


@in_virtual_time
async def test_decode_does_not_wait_for_a_prefill_that_hangs_longer_than_the_handoff_deadline() -> None:
    world = World(behave(p0=Behaviour(hangs=True)), prefills=1, decodes=1)
    assert (await answer(world)).ending == "finished"
    assert world.observer.endings[0].timings.ttft_s == pytest.approx(SETTINGS.handoff_s + 0.5)


@pytest.mark.parametrize(
    ("after_s", "state"), [(0.5, State.PREFILLING), (1.0005, State.WAITING), (1.15, State.DECODING)]
)
def test_cancelling_closes_both_legs_at_once_in_every_state(after_s: float, state: State) -> None:
    async def main() -> None:
        world = World(behave(), prefills=1, decodes=1)
        work = asyncio.ensure_future(Client(request(max_tokens=50)).run(world.coordinator, None, 0.0))
        await asyncio.sleep(after_s)
        assert world.coordinator.statistics().in_flight == {state: 1}
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert world.clock() == pytest.approx(after_s)
        world.check_idle()
        assert world.observer.endings[0].outcome == "cancelled"

    run_virtual(main())


@in_virtual_time
async def test_closing_the_iterator_between_two_steps_closes_the_legs() -> None:
    world = World(behave(), prefills=1, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    await stream.aclose()
    world.check_idle()
    assert world.coordinator.statistics().ended == {State.CANCELLED: 1}


@in_virtual_time
async def test_nothing_is_held_for_a_client_that_does_not_fetch_the_end() -> None:
    world = World(behave(), prefills=1, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=1))
    await anext(stream)
    assert not world.workers.streams
    assert world.ledger.statistics().open_leases == 0
    await stream.aclose()
    assert world.coordinator.statistics().ended == {State.FINISHED: 1}


@in_virtual_time
async def test_decode_that_ends_while_prefill_runs_closes_prefill() -> None:
    settings = replace(SETTINGS, handoff_s=0.1)
    world = World(behave(p0=Behaviour(hangs=True)), prefills=1, decodes=1, settings=settings)
    assert (await answer(world)).ending == "finished"
