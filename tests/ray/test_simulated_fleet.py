"""Sixteen simulated workers on Ray: a thousand answers, each token checked against the reference."""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.tokens import BlockFiller, reference_tokens
from cluster.engines.simulated.vocabulary import Vocabulary
from cluster.runtime.mark import current
from configs.schema import BatonConfig
from tests.chaos import rest
from tests.chaos.faults import DEFAULT
from tests.chaos.load import Load, Target
from tests.chaos.parts import Parts
from tests.chaos.requests import References, Requests, Shape
from tests.chaos.storm import Plan, storm
from tests.support.serving import Served, TestCluster, config_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

REQUESTS = 1000
CONCURRENCY = 64
TOKENS = 8


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster, tiny_model: str) -> Iterator[Served]:
    """The simulated preset: 8 prefill and 8 decode workers, decode on the other node."""
    with cluster.serve(preset(tiny_model)) as running:
        yield running


def preset(tiny_model: str) -> BatonConfig:
    return config_of(
        "simulated.yaml",
        model={"path": tiny_model, "served_name": "tiny"},
        prefill={"label_selector": {"node": "a"}},
        decode={"label_selector": {"node": "b"}},
        store={"handoff_ttl_s": 20},  # what nobody is left to collect is let go by then
        gateway={"admission": {"max_wait_s": 60}},  # a machine that stands still for a while refuses nobody here
    )


def prompts(count: int) -> list[list[int]]:
    """Random prompts of 1 to 600 tokens, every fourth of which shares a prefix with its neighbour."""
    rng = random.Random(7)
    made: list[list[int]] = []
    for number in range(count):
        shared = made[-1][: len(made[-1]) // 2] if number % 4 == 3 else []
        made.append(shared + [rng.randrange(300, 1500) for _ in range(rng.randrange(1, 400))])
    return made


async def test_a_thousand_requests_at_concurrency_64_get_exactly_the_right_tokens(
    fleet: Served, tiny_model: str
) -> None:
    candidates = Vocabulary.load(Path(tiny_model)).candidates
    filler, greedy = BlockFiller(16 * 256), Sampling(temperature=0.0, max_tokens=TOKENS)
    gate = asyncio.Semaphore(CONCURRENCY)
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:

        async def wrong(ids: list[int]) -> str | None:
            body = {"model": "tiny", "prompt": ids, "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
            async with gate:
                answer = await client.post("/v1/completions", json=body)
            if answer.status_code != 200:
                return answer.text
            got = answer.json()["choices"][0]["token_ids"]
            wanted = reference_tokens(ids, greedy, TOKENS, filler, candidates, 16)
            return None if got == wanted else f"{len(ids)} tokens: {got} instead of {wanted}"

        problems = [p for p in await asyncio.gather(*(wrong(ids) for ids in prompts(REQUESTS))) if p]
    assert problems == []
    await fleet.idle()


async def test_streams_whose_decode_workers_are_killed_go_on_with_exactly_the_right_tokens(
    fleet: Served, tiny_model: str
) -> None:
    tokens = 150
    candidates = Vocabulary.load(Path(tiny_model)).candidates
    filler, greedy = BlockFiller(16 * 256), Sampling(temperature=0.0, max_tokens=tokens)
    resumed = fleet.metric("baton_resumed_total")
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:

        async def wrong(ids: list[int]) -> str | None:
            got = [token async for token in streamed(client, ids, tokens)]
            wanted = reference_tokens(ids, greedy, tokens, filler, candidates, 16)
            return None if got == wanted else f"{len(ids)} tokens: {got} instead of {wanted}"

        work = [asyncio.create_task(wrong(ids)) for ids in prompts(48)]
        for process in decode_workers()[:2]:
            await asyncio.sleep(0.6)
            process.kill()
        problems = [p for p in await asyncio.gather(*work) if p]
    assert problems == []
    assert fleet.metric("baton_resumed_total") > resumed
    await fleet.idle()


async def streamed(client: httpx.AsyncClient, ids: list[int], tokens: int) -> AsyncIterator[int]:
    """The tokens of a streamed completion; fails on anything else in the stream."""
    body = {"model": "tiny", "prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    async with client.stream("POST", "/v1/completions", json={**body, "return_token_ids": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "choices" in event, event
                for token in event["choices"][0]["token_ids"] or ():
                    yield token


def decode_workers() -> list[psutil.Process]:
    """This cluster's: its nodes are processes that the tests have started."""
    below = psutil.Process().children(recursive=True)
    return [process for process in below if "ServeReplica:baton:DecodeWorker" in " ".join(process.cmdline())]


async def test_a_hot_prefix_leaves_no_decode_worker_idle_and_is_computed_no_more(fleet: Served) -> None:
    prefix = [300 + i % 1000 for i in range(900)]
    body = {"model": "tiny", "max_tokens": 100, "temperature": 0, "ignore_eos": True}
    async with httpx.AsyncClient(base_url=fleet.url, timeout=120) as client:

        async def ask(number: int) -> int:
            answer = await client.post("/v1/completions", json={**body, "prompt": [*prefix, 300 + number]})
            return int((answer.json()["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0))

        await ask(1000)
        before = by_replica(fleet, "baton_worker_legs_decode_total")
        cached = await asyncio.gather(*(ask(number) for number in range(64)))
    after = by_replica(fleet, "baton_worker_legs_decode_total")
    assert [replica for replica, legs in after.items() if legs == before.get(replica, 0.0)] == []
    assert min(cached) >= 880


def by_replica(fleet: Served, name: str) -> dict[str, float]:
    """A metric of the workers, by replica."""
    return {key: value for key, value in fleet.metrics().items() if key.startswith(name)}


async def test_a_client_that_leaves_is_noticed_also_when_its_body_came_after_its_headers(fleet: Served) -> None:
    body = b'{"model": "tiny", "prompt": "once", "max_tokens": 2000, "ignore_eos": true}'
    address = httpx.URL(fleet.url)
    _, writer = await asyncio.open_connection(address.host, address.port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.2)  # the body must be a segment of its own
    writer.write(body)
    while not fleet.metric("baton_worker_running"):  # noqa: ASYNC110  (it runs in other processes)
        await asyncio.sleep(0.02)
    writer.close()
    await writer.wait_closed()
    await fleet.idle(5.0)


async def test_no_stream_breaks_and_nothing_is_left_whatever_is_killed(fleet: Served, tiny_model: str) -> None:
    references = References(preset(tiny_model), Path(tiny_model))
    load = Load(Target(fleet.url, fleet.model, Requests(7, Shape()), references), 24, itertools.count())
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        await storm(Plan(seed=7, seconds=20.0, every_s=4.0, faults=DEFAULT), Parts(current()), load, print)
        load.finish()
    assert [*load.total.complaints, *load.total.wrong] == []
    await rest.whole(fleet, 16, deadline_s=60.0)
    assert (await rest.held(fleet, deadline_s=45.0), await rest.spoilt()) == ("", "")
