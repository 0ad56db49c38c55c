"""Clients of a soak, in a process of their own: each draws what to do next, as often as a seed and these shares say.

`python -m tests.chaos.crowd PLAN` takes a `Plan` as JSON and prints a `Result` as JSON. No two prompts are the same. An
answer that is not what its request must have ends the run with an error.
"""

import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop

from tests.benchmarks.load import Connection, Reply, connect
from tests.benchmarks.load import Plan as Address

PATH = "/v1/completions"
LEAVE_WITHIN_S = 0.15
"""Of asking. Some have had their whole answer by then."""


@dataclass(frozen=True, slots=True)
class Kind:
    """So many in a hundred have `words` words and ask for `tokens`. Their clients leave, or they must be refused."""

    name: str
    share: int
    words: int
    tokens: int
    stream: bool = True
    leaves: bool = False
    refused: dict[str, Any] = field(default_factory=dict)


KINDS = (
    Kind("whole", 60, 30, 4, stream=False),
    Kind("streamed", 18, 30, 4),
    Kind("streamed after a hand-off", 8, 150, 4),
    Kind("left", 5, 150, 64, leaves=True),
    Kind("refused as too long", 3, 30, 10**6, refused={"max_tokens": 10**6}),
    Kind("refused as wrong", 3, 30, 4, stream=False, refused={"temperature": -1}),
    Kind("refused as unknown", 3, 30, 4, refused={"model": "nobody"}),
)
REFUSALS = (400, 404)


class Plan(msgspec.Struct, frozen=True):
    """So many `clients` ask so many `requests` of the server on this port, for `seconds` at most."""

    port: int
    model: str
    clients: int
    requests: int
    seconds: float
    seed: int = 0


class Result(msgspec.Struct, frozen=True):
    """How many requests of each kind were asked."""

    asked: dict[str, int]


class Crowd:
    """Sends a plan's requests."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._address = Address(plan.port, PATH, plan.model, "", 0, True, 0, 0.0)
        self._numbers = iter(range(plan.requests))
        self._rng = random.Random(plan.seed)
        self.asked: Counter[str] = Counter()

    async def run(self) -> Result:
        """All clients until time is up or all requests are answered. Raises when an answer is wrong."""
        ends = time.monotonic() + self._plan.seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.clients):
                group.create_task(self._client(ends))
        return Result(dict(self.asked))

    async def _client(self, ends: float) -> None:
        connection: Connection | None = None
        weights = [kind.share for kind in KINDS]
        for number in itertools.takewhile(lambda _: time.monotonic() < ends, self._numbers):
            (kind,) = self._rng.choices(KINDS, weights)
            connection = connection or await connect(self._address)
            reply = await self._ask(connection, kind, number)
            self.asked[kind.name] += 1
            if reply is None:
                connection.close()
                connection = None
            elif not is_right(reply, kind):
                raise RuntimeError(f"request {number}, {kind.name}: {reply}")
        if connection is not None:
            connection.close()

    async def _ask(self, connection: Connection, kind: Kind, number: int) -> Reply | None:
        """The reply; None when the client left before its end."""
        try:
            async with asyncio.timeout(self._rng.uniform(0, LEAVE_WITHIN_S) if kind.leaves else None):
                return await connection.ask(self._request(kind, number))
        except TimeoutError:
            if kind.leaves:
                return None
            raise

    def _request(self, kind: Kind, number: int) -> bytes:
        asked = {
            "model": self._plan.model,
            "prompt": f"{self._plan.seed} {number} " + "word " * kind.words,
            "max_tokens": kind.tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": kind.stream,
        }
        body = json.dumps(asked | kind.refused).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: {self._address.host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def is_right(reply: Reply, kind: Kind) -> bool:
    """Whether it is what a request of this kind must have."""
    if kind.refused:
        return reply.status in REFUSALS
    return reply.status == 200 and reply.done == kind.stream


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    print(msgspec.json.encode(uvloop.run(Crowd(plan).run())).decode(), flush=True)


if __name__ == "__main__":
    main()
