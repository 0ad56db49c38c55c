"""The load on one server, made by a process of its own: asyncio protocols and httptools, so that the client is cheap.

`python -m tests.benchmarks.load PLAN` takes a `Plan` as JSON and prints a `Result` as JSON. Every connection sends its
next request when the last reply has ended (closed loop). A reply that is not complete and 200 ends the run with an
error: a benchmark of failures is worth nothing.
"""

import asyncio
import itertools
import json
import sys
import time
from typing import cast

import httptools
import msgspec
import uvloop

REPLY_DEADLINE_S = 30.0
EVENT = b"data: "
DONE = b"data: [DONE]"


class Plan(msgspec.Struct, frozen=True):
    """What to send where. `prompt` gets a number in front of it, so that no two prompts share their first block.

    With `requests`, that many are sent and `seconds` bounds them; with `fresh`, each on a connection of its own.
    """

    port: int
    path: str
    model: str
    prompt: str
    max_tokens: int
    stream: bool
    concurrency: int
    seconds: float
    requests: int | None = None
    fresh: bool = False
    host: str = "127.0.0.1"
    seed: int = 0


class Result(msgspec.Struct, frozen=True):
    """What came back. `first_s` holds the seconds from sending (fresh: from connecting) to the first event."""

    replies: int
    elapsed_s: float
    events: int
    client_cpu_s: float
    first_s: list[float]


class Reply(msgspec.Struct, frozen=True):
    """One reply, whole."""

    status: int
    first_at: float
    events: int
    done: bool
    body: bytes


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, one request at a time."""

    def __init__(self) -> None:
        self._reply: asyncio.Future[Reply] | None = None
        self._transport: asyncio.Transport | None = None
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._first_at = 0.0
        self._events = 0
        self._tail = b""

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read its reply to the end."""
        assert self._transport is not None
        self._reset()
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(REPLY_DEADLINE_S):
            return await self._reply

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are none by isinstance

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("the server closed the connection before the reply ended"))

    def on_body(self, body: bytes) -> None:
        if not self._first_at:
            self._first_at = time.perf_counter()
        self._events += body.count(EVENT)
        self._tail = (self._tail + body)[-1024:]

    def on_message_complete(self) -> None:
        done = DONE in self._tail
        reply = Reply(self._parser.get_status_code(), self._first_at, self._events - done, done, self._tail)
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)


class Generator:
    """Sends a plan's requests and gathers what comes back."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = itertools.count(plan.seed)
        self._left = plan.requests
        self.first_s: list[float] = []
        self.events = 0
        self.replies = 0

    async def run(self) -> Result:
        """All connections until time is up or all requests are answered."""
        cpu = time.process_time()
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.concurrency):
                group.create_task(self._client(start + self._plan.seconds))
        elapsed_s = time.perf_counter() - start
        return Result(self.replies, elapsed_s, self.events, time.process_time() - cpu, self.first_s)

    def _take(self) -> bool:
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    async def _client(self, end: float) -> None:
        connection: Connection | None = None
        try:
            while time.perf_counter() < end and self._take():
                request = self._request()
                sent_at = time.perf_counter()
                if connection is None:
                    connection = await connect(self._plan)
                self._count(await connection.ask(request), sent_at)
                if self._plan.fresh:
                    connection.close()
                    connection = None
        finally:
            if connection is not None:
                connection.close()

    def _count(self, reply: Reply, sent_at: float) -> None:
        if reply.status != 200 or reply.done != self._plan.stream:
            raise RuntimeError(f"not a whole reply: {reply}")
        self.replies += 1
        self.events += reply.events
        self.first_s.append(reply.first_at - sent_at)

    def _request(self) -> bytes:
        plan = self._plan
        body = json.dumps(
            {
                "model": plan.model,
                "prompt": f"{next(self._numbers)} {plan.prompt}",
                "max_tokens": plan.max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": plan.stream,
            }
        ).encode()
        head = f"POST {plan.path} HTTP/1.1\r\nHost: {plan.host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def connect(plan: Plan) -> Connection:
    """A connection; asyncio's transports set TCP_NODELAY."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, plan.host, plan.port)
    return connection


async def offer(plan: Plan) -> Result:
    """Send a plan's requests from this process."""
    return await Generator(plan).run()


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    print(msgspec.json.encode(uvloop.run(offer(plan))).decode(), flush=True)


if __name__ == "__main__":
    main()
