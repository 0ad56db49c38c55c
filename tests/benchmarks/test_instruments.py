"""The benchmarks' own instruments: what measures must be right before what is measured can be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.benchmarks.fake_engine import FakeEngine
from tests.benchmarks.load import Plan, offer
from tests.benchmarks.spread import Spread, percentile, ratios, spread

EVENTS = b'data: {"a": 1}\n\ndata: {"a": 2}\n\n'
DONE = b"data: [DONE]\n\n"


def chunked(*parts: bytes) -> bytes:
    """An HTTP reply in chunks."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body


@asynccontextmanager
async def server(reply: bytes) -> AsyncIterator[tuple[int, list[int]]]:
    """Answers every request with the same bytes; the port, and a list with an entry for each connection."""
    connections: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            while head := await reader.read(65_536):
                assert head.startswith(b"POST /v1/completions")
                writer.write(reply)
        finally:
            writer.close()

    running = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1], connections


def plan(port: int, **changes: object) -> Plan:
    """Six streamed requests over two connections."""
    settings: dict[str, object] = {"stream": True, "concurrency": 2, "seconds": 10.0, "requests": 6, **changes}
    return Plan(port=port, path="/v1/completions", model="m", prompt="hello", max_tokens=2, **settings)  # type: ignore[arg-type]  # a test's shorthand


async def test_the_load_generator_counts_replies_and_events_and_keeps_connections() -> None:
    async with server(chunked(EVENTS, DONE)) as (port, connections):
        result = await offer(plan(port))
    assert (result.replies, result.events, len(result.first_s), len(connections)) == (6, 12, 6, 2)
    assert all(0 < first_s < result.elapsed_s for first_s in result.first_s)


async def test_fresh_means_a_connection_for_each_request() -> None:
    async with server(chunked(EVENTS, DONE)) as (port, connections):
        await offer(plan(port, fresh=True))
    assert len(connections) == 6


@pytest.mark.parametrize(
    "reply",
    [chunked(EVENTS), b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"],
    ids=["a stream without its end", "a status that is not 200"],
)
async def test_the_load_generator_refuses_to_measure_failures(reply: bytes) -> None:
    async with server(reply) as (port, _):
        with pytest.raises(ExceptionGroup) as caught:
            await offer(plan(port))
    assert caught.group_contains(RuntimeError, match="not a whole reply")


@pytest.mark.parametrize("step_s", [0.0, 0.001])
async def test_the_fake_engine_gives_every_request_exactly_its_tokens(step_s: float) -> None:
    engine = FakeEngine(step_s)
    made: dict[int, list[int]] = {1: [], 7: [], 64: []}
    ended = asyncio.Semaphore(0)

    def emit(tokens: int, count: int, last: bool) -> None:
        made[tokens].append(count)
        if last:
            ended.release()

    serving = asyncio.create_task(engine.serve())
    for tokens in made:
        engine.start(tokens, lambda count, last, tokens=tokens: emit(tokens, count, last))
    async with asyncio.timeout(5):
        for _ in made:
            await ended.acquire()
    serving.cancel()
    assert {tokens: sum(counts) for tokens, counts in made.items()} == {1: 1, 7: 7, 64: 64}


async def test_a_cancelled_run_of_the_fake_engine_gets_nothing_more() -> None:
    engine = FakeEngine(0.0)
    ended = asyncio.Event()
    serving = asyncio.create_task(engine.serve())
    engine.cancel(engine.start(4, lambda count, last: pytest.fail("a cancelled run got a token")))
    engine.start(4, lambda count, last: ended.set() if last else None)
    async with asyncio.timeout(5):
        await ended.wait()
    serving.cancel()


def test_figures_come_with_their_range_and_ratios_are_taken_round_by_round() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert ratios([2.0, 9.0], [1.0, 3.0]) == Spread(2.5, 2.0, 3.0, 2)
    assert str(spread([1234.5])) == "1,234 (1,234–1,234)"
    assert [percentile([4.0, 1.0, 3.0, 2.0], share) for share in (0.5, 0.99)] == [2.0, 4.0]
