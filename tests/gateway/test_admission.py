"""What a coordinator refuses, and whom it lets go first, as clients see it over HTTP."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.workers import Leg
from cluster.gateway.asgi import DEADLINE
from cluster.gateway.metrics import GatewayMetrics
from routing.fleet import Role
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from tests.gateway.conftest import open_client
from tests.gateway.requests import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    chat,
    completion,
    is_openai_error,
    message,
    response,
)
from tests.simulation.fake_workers import Behaviour, FakeWorkers
from tests.unit.dataplane.peers import until

BODIES = {CHAT: chat(), COMPLETIONS: completion(), RESPONSES: response()}
HEADER = DEADLINE.decode()


@dataclass
class Fleet:
    """A coordinator with one decode worker that answers one request after the other."""

    workers: FakeWorkers
    coordinator: Coordinator
    begun: list[str]

    @property
    def waiting(self) -> int:
        return sum(self.coordinator.statistics().admission.waiting_requests.values())


def behaving(begun: list[str]) -> Callable[[str, Leg], Behaviour]:
    def behave(_: str, leg: Leg) -> Behaviour:
        begun.append(leg.request.cache_salt or "")
        return Behaviour(start_s=0.05, gap_s=0.0, step_tokens=64)

    return behave


@pytest.fixture
async def fleet(current_backend) -> AsyncIterator[Fleet]:
    begun: list[str] = []
    workers, ledger = FakeWorkers(behaving(begun)), Ledger()
    workers.add("d0", Role.DECODE)
    admission = AdmissionSettings(1, 5.0, LineSettings(max_requests=3))
    coordinator = Coordinator(
        workers,
        LeastWork(LeastWorkSettings(), ledger),
        ledger,
        asyncio.get_running_loop().time,
        random.Random(0),
        CoordinatorSettings(admission=admission),
        GatewayMetrics(),
    )
    before, current_backend.now = current_backend.now, coordinator
    yield Fleet(workers, coordinator, begun)
    current_backend.now = before
    coordinator.check()
    assert not workers.streams


@pytest.fixture
async def http(plain_app, fleet) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(plain_app) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_without_a_replica_everything_is_503_before_any_streaming(http, fleet, path, stream):
    fleet.workers.forget("d0")
    got = await http.post(path, json={**BODIES[path], "stream": stream})
    assert (got.status_code, got.headers["content-type"]) == (503, "application/json")
    assert got.headers["retry-after"] == "1"
    assert is_openai_error(got.json(), 503)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_too_much_is_429_before_any_streaming_and_the_others_are_answered(http, fleet, stream):
    body = completion(stream=stream, max_tokens=2)
    got = await asyncio.gather(*(http.post(COMPLETIONS, json=body) for _ in range(6)))
    statuses = sorted(each.status_code for each in got)
    assert statuses == [200] * 4 + [429] * 2
    for each in got:
        if each.status_code == 429:
            assert each.headers["content-type"] == "application/json"
            assert int(each.headers["retry-after"]) >= 1
            assert is_openai_error(each.json(), 429)


async def test_lower_priority_numbers_go_sooner(http, fleet):
    async def ask(name: str, priority: int) -> httpx.Response:
        return await http.post(COMPLETIONS, json=completion(max_tokens=2, priority=priority, cache_salt=name))

    first = asyncio.ensure_future(ask("first", 0))
    await until(lambda: fleet.begun)
    waiting = []
    for name, priority in (("later", 1), ("normal", 0), ("sooner", -1)):
        waiting.append(asyncio.ensure_future(ask(name, priority)))
        await until(lambda: fleet.waiting == len(waiting))
    assert [each.status_code for each in await asyncio.gather(first, *waiting)] == [200] * 4
    assert fleet.begun == ["first", "sooner", "normal", "later"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_how_long_a_client_waits_for_its_first_token_is_known_to_the_coordinator(client, backend, path):
    got = await client.post(path, json=BODIES[path], headers={HEADER: "1.5"})
    assert got.status_code == 200
    assert (await client.post(path, json=BODIES[path])).status_code == 200
    assert [each.first_token_s for each in backend.requests] == [1.5, None]


@pytest.mark.parametrize("said", ["soon", "0", "-1", "inf", "nan", ""])
async def test_a_deadline_that_is_no_time_is_the_clients_fault(client, backend, said):
    got = await client.post(COMPLETIONS, json=completion(), headers={HEADER: said})
    assert got.status_code == 400
    assert HEADER in got.json()["error"]["message"]
    assert backend.requests == []


async def test_a_failure_of_anthropics_messages_says_when_to_come_back(http, fleet):
    fleet.workers.forget("d0")
    got = await http.post(MESSAGES, json=message())
    assert (got.status_code, got.headers["retry-after"]) == (503, "1")
    assert got.json()["error"]["type"] == "overloaded_error"
