"""Clients of the overload benchmark: they come at random moments whatever happens, or one after the other."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked: `prompt` tokens that nobody asked before, and so many tokens of answer."""

    name: str
    prompt: int
    outputs: range


@dataclass(slots=True)
class Try:
    """One request: when it was sent, and when its first token, its last, or its refusal came. Seconds."""

    tenant: str | None
    sent_at: float
    first_at: float | None = None
    ended_at: float | None = None
    refused_at: float | None = None
    retry_after_s: float = 0.0
    told_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        """Of one that was answered."""
        assert self.first_at is not None, "it was not answered"
        return self.first_at - self.sent_at


def nobody() -> None:
    """The tenant where it does not matter."""
    return


class Clients:
    """Sends requests of one kind to one server."""

    def __init__(self, http: httpx.AsyncClient, kind: Kind, rng: random.Random) -> None:
        self.kind = kind
        self._http = http
        self._rng = rng

    async def one(self, tenant: str | None = None) -> Try:
        """A request, to its end. Raises for any answer but 200 and 429."""
        prompt = [self._rng.randrange(300, 1500) for _ in range(self.kind.prompt)]
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": self._rng.choice(self.kind.outputs),
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            **({"cache_salt": tenant} if tenant is not None else {}),
        }
        sent = Try(tenant, time.monotonic())
        async with self._http.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code == TOO_MANY:
                sent.refused_at = time.monotonic()
                sent.retry_after_s = float(answer.headers["retry-after-ms"]) / 1_000
                sent.told_s = float(answer.headers["retry-after"])
                return sent
            answer.raise_for_status()
            async for _ in answer.aiter_raw():
                sent.first_at = sent.first_at or time.monotonic()
        sent.ended_at = time.monotonic()
        return sent

    async def alone(self, times: int) -> list[Try]:
        """One after the other."""
        return [await self.one() for _ in range(times)]

    async def in_turns(self, at_once: int, seconds: float) -> list[Try]:
        """So many at any time, each of which comes back when it is told to."""
        ends, tries = time.monotonic() + seconds, list[Try]()

        async def client() -> None:
            while time.monotonic() < ends:
                tries.append(sent := await self.one())
                await asyncio.sleep(sent.retry_after_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(client())
        return tries

    async def at_random(
        self, per_s: float, seconds: float, whose: Callable[[], str | None] = lambda: None
    ) -> list[Try]:
        """So many a second, for so long; returns when all have ended."""
        ends, work = time.monotonic() + seconds, list[asyncio.Task[Try]]()
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < ends:
                work.append(group.create_task(self.one(whose())))
                await asyncio.sleep(self._rng.expovariate(per_s))
        return [task.result() for task in work]
