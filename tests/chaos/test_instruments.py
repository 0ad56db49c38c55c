"""The chaos tools themselves: what they cut is cut, what they judge is judged."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from cluster.runtime.mark import start_ticks
from tests.benchmarks.load import Reply
from tests.chaos.crowd import KINDS, is_right
from tests.chaos.load import Tally
from tests.chaos.parts import Part
from tests.chaos.requests import Requests, Shape
from tests.chaos.storm import Plan
from tests.chaos.stream import Answer, ask
from tests.chaos.wires import wires

REQUESTS = Requests(1, Shape())
RIGHT = [1, 2, 3]


async def test_a_severed_connection_ends_at_both_ends() -> None:
    far_end = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        far_end.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    (wire,) = [each for each in wires(os.getpid(), os.getpid()) if each.remote_port == port]
    wire.sever()
    assert await asyncio.wait_for(reader.read(), 5.0) == b""
    await asyncio.wait_for(far_end.wait(), 5.0)
    writer.close()
    await writer.wait_closed()
    server.close()
    with pytest.raises(OSError, match=r"descriptor|endpoint|connection"):
        wire.sever()


def test_a_part_is_never_taken_for_a_later_process() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    began = start_ticks(sleeper.pid)
    assert began is not None
    with pytest.raises(ProcessLookupError):
        Part("store", sleeper.pid, began - 1).signal(signal.SIGKILL)
    assert sleeper.poll() is None
    part = Part("store", sleeper.pid, began)
    part.signal(signal.SIGKILL)
    part.await_gone()
    sleeper.wait(5)


def test_every_fault_comes_as_often_as_the_others_and_a_seed_repeats_them() -> None:
    plan = Plan(seed=3, seconds=100.0, every_s=5.0, faults=("a", "b", "c", "d"))
    assert Counter(plan) == dict.fromkeys([("a",), ("b",), ("c",), ("d",)], 5)
    assert list(plan) == list(plan)


def test_faults_that_strike_together_are_different_ones() -> None:
    plan = Plan(seed=3, seconds=100.0, every_s=10.0, faults=("a", "b", "c", "d"), at_once=2)
    assert len(list(plan)) == 10
    assert Counter(name for names in plan for name in names) == dict.fromkeys("abcd", 5)
    assert all(len(set(names)) == 2 for names in plan)


def test_a_request_can_be_made_again_by_its_number() -> None:
    assert REQUESTS[17] == Requests(1, Shape())[17]
    assert REQUESTS[17] != REQUESTS[18]


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (Answer([1, 2, 3]), (1, 0, 0, 0)),
        (Answer([1, 2], left=True), (0, 1, 0, 0)),
        (Answer([1], complaint="the connection ended"), (0, 0, 1, 0)),
        (Answer([1, 2]), (0, 0, 0, 1)),
        (Answer([1, 9], left=True), (0, 0, 0, 1)),
        (Answer([1, 2, 3, 4]), (0, 0, 0, 1)),
    ],
)
def test_an_answer_is_whole_left_broken_or_wrong(answer: Answer, counted: tuple[int, int, int, int]) -> None:
    tally = Tally()
    tally.judge(REQUESTS[0], answer, RIGHT)
    assert (tally.whole, tally.left, len(tally.complaints), len(tally.wrong)) == counted


@pytest.mark.parametrize(
    ("reply", "right_for"),
    [
        (Reply(200, 0.0, 1, True, b""), {"streamed", "streamed after a hand-off", "left"}),
        (Reply(200, 0.0, 0, False, b""), {"whole"}),
        (Reply(400, 0.0, 0, False, b""), {"refused as too long", "refused as wrong", "refused as unknown"}),
        (Reply(500, 0.0, 0, False, b""), set()),
    ],
)
def test_a_crowd_takes_an_answer_only_for_a_request_that_must_have_it(reply: Reply, right_for: set[str]) -> None:
    assert {kind.name for kind in KINDS if is_right(reply, kind)} == right_for


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices": [{"token_ids": [5], "finish_reason": null}]}\n\n'
LAST = b'data: {"choices": [{"token_ids": [6], "finish_reason": "length"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunks(*parts: bytes, end: bool = True) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + (b"0\r\n\r\n" if end else b"")


@pytest.mark.parametrize(
    ("reply", "tokens", "complaint"),
    [
        (chunks(TOKEN, LAST, DONE), [5, 6], ""),
        (chunks(TOKEN + LAST[:9], LAST[9:], DONE), [5, 6], ""),
        (chunks(TOKEN, LAST, end=False), [5, 6], "the connection ended before the reply did (closed)"),
        (chunks(TOKEN, LAST), [5, 6], "no [DONE]"),
        (chunks(TOKEN), [5], "the reply ended with None and 1 tokens"),
        (chunks(TOKEN, b'data: {"error": "x"}\n\n'), [5], 'an event of the stream: {"error": "x"}'),
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy", [], "status 503: busy"),
        (b"nonsense\r\n\r\n", [], "not a reply"),
    ],
)
async def test_a_stream_is_whole_only_when_it_ends_as_it_should(
    reply: bytes, tokens: list[int], complaint: str
) -> None:
    answer = await answer_to(reply, leave_after_s=None)
    assert answer.tokens == tokens
    assert answer.complaint.startswith(complaint)
    assert bool(answer.complaint) == bool(complaint)


async def test_a_client_that_leaves_has_what_had_come() -> None:
    began = time.monotonic()
    answer = await answer_to(chunks(TOKEN, end=False), leave_after_s=0.05, keep_open=True)
    assert (answer.tokens, answer.left, answer.complaint) == ([5], True, "")
    assert time.monotonic() - began < 2.0


async def answer_to(reply: bytes, leave_after_s: float | None, keep_open: bool = False) -> Answer:
    """What a client makes of these bytes."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        if keep_open:
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        answer = await ask("127.0.0.1", server.sockets[0].getsockname()[1], b"{}", leave_after_s)
        await asyncio.wait_for(over.wait(), 5.0)
    return answer
