"""Clients that keep a deployment of simulated engines busy while something is done to it, and check every token."""

import asyncio
import itertools
from collections.abc import Iterator

import httpx

from tests.chaos.requests import References, Requests
from tests.chaos.stream import ask
from tests.support.serving import Served


class Traffic:
    """`clients` ask one request after the other until told to stop; every wrong answer is a problem."""

    def __init__(self, served: Served, references: References, requests: Requests, clients: int) -> None:
        self.problems: list[str] = []
        self.answered = 0
        self._served = served
        self._references = references
        self._requests = requests
        self._clients = clients
        self._over = asyncio.Event()

    async def run(self) -> None:
        numbers = itertools.count()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._clients):
                group.create_task(self._client(numbers))

    def finish(self) -> None:
        self._over.set()

    async def _client(self, numbers: Iterator[int]) -> None:
        address = httpx.URL(self._served.url)
        while not self._over.is_set():
            request = self._requests[next(numbers)]
            answer = await ask(address.host, address.port, request.body(self._served.model), None)
            if answer.tokens == self._references.of(request):
                self.answered += 1
            else:
                self.problems.append(f"request {request.number}: {answer.complaint or answer.tokens[:5]}")
