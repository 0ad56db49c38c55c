"""A generation never outlives its HTTP request."""

import asyncio

import pytest

from cluster.coordinator.workers import GenerationRequest
from cluster.gateway.scope import OpenGeneration, RequestScope
from tests.fakes.backend import FakeBackend, Script

REQUEST = GenerationRequest("r", [1], b"\x80", max_tokens=16)


def gated(**script) -> tuple[FakeBackend, OpenGeneration]:
    backend = FakeBackend(script=lambda _: Script(gate=asyncio.Event(), **script))
    return backend, OpenGeneration(backend.generate(REQUEST))


async def test_closing_ends_a_generation_that_another_task_waits_for():
    backend, generation = gated()
    scope = RequestScope()
    scope.enter(generation)
    waiter = asyncio.create_task(generation.next())
    await backend.started.wait()
    await scope.close()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert backend.open == set()


async def test_closing_ends_a_generation_between_two_steps():
    backend, generation = gated(gate_before=2)
    scope = RequestScope()
    scope.enter(generation)
    assert await generation.next() is not None
    await scope.close()
    assert backend.open == set()
    with pytest.raises(asyncio.CancelledError):
        await generation.next()


async def test_nothing_is_opened_in_a_closed_scope():
    backend, generation = gated()
    scope = RequestScope()
    await scope.close()
    with pytest.raises(asyncio.CancelledError):
        scope.enter(generation)
    assert backend.requests == []


async def test_a_generation_that_ended_by_itself_is_forgotten():
    backend = FakeBackend()
    generation = OpenGeneration(backend.generate(REQUEST))
    scope = RequestScope()
    scope.enter(generation)
    while await generation.next() is not None:
        pass
    scope.leave(generation)
    assert scope.open == set()
    await generation.close()
    await generation.close()
