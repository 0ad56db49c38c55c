"""Requests that wait to be let in, and those that are refused, in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import CoordinatorSettings
from cluster.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
)
from routing.fleet import Fleet
from routing.router import Predicted, RouteRequest
from tests.simulation.world import SETTINGS, Client, World, request
from tests.unit.coordinator.cases import Pair, behave, in_virtual_time


def bounded(max_outputs: int, waiting: int, max_wait_s: float | None = None) -> CoordinatorSettings:
    admission = AdmissionSettings(max_outputs, max_wait_s, LineSettings(max_requests=waiting))
    return replace(SETTINGS, admission=admission)


@in_virtual_time
async def test_what_may_neither_go_nor_wait_is_refused_before_anything_is_streamed() -> None:
    world = World(behave(), settings=bounded(3, 0))
    stream = world.coordinator.generate(request(outputs=2, max_tokens=50))
    await anext(stream)
    with pytest.raises(Overloaded, match="max_waiting_requests"):
        await anext(world.coordinator.generate(request(outputs=2)))
    with pytest.raises(InvalidRequest, match="4 outputs"):
        world.coordinator.admit(4)
    await stream.aclose()
    assert world.observer.refusals == ["overloaded", "invalid_request"]
    world.check_idle()


@in_virtual_time
async def test_what_waits_goes_as_soon_as_there_is_room() -> None:
    world = World(behave(), settings=bounded(1, 1))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    second = Client(request(name="second"))
    waiting = asyncio.ensure_future(second.run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.5)
    assert world.coordinator.statistics().admission.waiting_requests == {0: 1}
    assert len(world.workers.opened) == 2
    await stream.aclose()
    await waiting
    assert second.ending == "finished"
    world.check_idle()


@in_virtual_time
async def test_a_clients_time_begins_when_it_comes_not_when_it_is_let_in() -> None:
    world = World(behave(), settings=replace(bounded(1, 1), request_s=2.5))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    second = Client(request(name="second"))
    waiting = asyncio.ensure_future(second.run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.75)
    await stream.aclose()
    await waiting
    alone_s, in_all_s = world.observer.ttft_s
    assert in_all_s == pytest.approx(0.75 + alone_s)
    ended = world.observer.endings[1]
    assert (ended.outcome, ended.timings.line_s) == ("finished", pytest.approx(0.75))
    assert ended.timings.total_s == pytest.approx(0.75 + alone_s + 0.3)
    world.check_idle()


@in_virtual_time
async def test_time_in_line_is_part_of_the_time_that_a_request_may_take() -> None:
    world = World(behave(), settings=replace(bounded(1, 1), request_s=2.0))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    begun = world.clock()
    second = Client(request(name="second", max_tokens=50))
    waiting = asyncio.ensure_future(second.run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.25)
    await stream.aclose()
    await waiting
    assert (type(second.ending), world.clock() - begun) == (DeadlineExceeded, pytest.approx(2.0))
    world.check_idle()


@in_virtual_time
async def test_a_client_that_leaves_the_line_is_out_of_it_at_once() -> None:
    world = World(behave(), settings=bounded(1, 1))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    waiting = asyncio.ensure_future(Client(request()).run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not world.coordinator.statistics().admission.waiting_requests
    await stream.aclose()
    assert world.observer.refusals == ["cancelled"]
    world.check_idle()


@in_virtual_time
async def test_who_has_waited_as_long_as_allowed_is_told_so() -> None:
    world = World(behave(), settings=bounded(1, 1, max_wait_s=2.0))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    begun = world.clock()
    with pytest.raises(Overloaded, match="max_wait_s"):
        await anext(world.coordinator.generate(request()))
    assert world.clock() - begun == pytest.approx(1.5)
    await stream.aclose()
    world.check_idle()


@in_virtual_time
async def test_one_with_more_right_to_wait_crowds_another_out() -> None:
    world = World(behave(), settings=bounded(1, 1))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    later = Client(replace(request(), priority=1))
    sooner = Client(replace(request(), priority=-1))
    waiting = [asyncio.ensure_future(each.run(world.coordinator, None, 0.0)) for each in (later, sooner)]
    await asyncio.sleep(0.1)
    assert isinstance(later.ending, Overloaded)
    await stream.aclose()
    await asyncio.gather(*waiting)
    assert sooner.ending == "finished"
    world.check_idle()


class Foresees(Pair):
    """A router that says what awaits a request."""

    def __init__(self, queue_s: float) -> None:
        self._queue_s = queue_s

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return Predicted(self._queue_s, 0.5, 0.1, 0.1, 0.1, 100, 0)


@in_virtual_time
async def test_one_whose_client_waits_less_than_the_prompt_takes_is_refused_for_good() -> None:
    world = World(behave(), prefills=1, decodes=1, router=Foresees(0.0))
    with pytest.raises(DeadlineExceeded, match=r"0\.5 s"):
        await anext(world.coordinator.generate(replace(request(), first_token_s=0.5)))
    assert (world.observer.refusals, world.workers.opened) == (["deadline_exceeded"], [])
    world.check_idle()


@in_virtual_time
async def test_one_whose_client_waits_less_than_the_line_takes_is_refused_at_once() -> None:
    world = World(behave(), prefills=1, decodes=1, router=Foresees(0.3))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    patient = Client(replace(request(), first_token_s=2.5))
    await patient.run(world.coordinator, None, 0.0)
    assert patient.ending == "finished"
    begun = world.clock()
    with pytest.raises(Overloaded, match="its client"):
        await anext(world.coordinator.generate(replace(request(), first_token_s=0.9)))
    assert world.clock() == begun
    await stream.aclose()
    world.check_idle()
