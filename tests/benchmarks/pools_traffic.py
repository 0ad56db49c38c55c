"""Traffic of the live pools benchmark: the requests of a trace, each sent at its time, and how each of them fared."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from cluster.planning.outcome import Slo
from cluster.planning.trace import TraceRequest
from tests.chaos.stream import ask


@dataclass(frozen=True, slots=True)
class Fared:
    """One request. Seconds; `complaint` says what was wrong with its answer, and is empty where nothing was."""

    arrival_s: float
    late_s: float
    ttft_s: float
    itl_s: float
    complaint: str

    def keeps(self, slo: Slo) -> bool:
        """Whether it was answered within both targets."""
        return not self.complaint and self.ttft_s <= slo.ttft_s and self.itl_s <= slo.itl_s


async def send(url: str, requests: Sequence[TraceRequest], rng: random.Random) -> list[Fared]:
    """All of them, the first at once and the others as long after it as in the trace. Returns when all have ended."""
    address = httpx.URL(url)
    began = time.monotonic()
    first_s = requests[0].arrival_s

    async def one(request: TraceRequest, body: bytes) -> Fared:
        due = began + request.arrival_s - first_s
        await asyncio.sleep(due - time.monotonic())
        late_s, sent = time.monotonic() - due, time.monotonic()
        answer = await ask(address.host, address.port, body, None)
        ttft_s = answer.first_s or 0.0
        itl_s = (time.monotonic() - sent - ttft_s) / max(1, len(answer.tokens) - 1)
        return Fared(request.arrival_s, late_s, ttft_s, itl_s, answer.complaint)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(request, _body(request, rng))) for request in requests]
    return [task.result() for task in tasks]


def _body(request: TraceRequest, rng: random.Random) -> bytes:
    """A completion whose prompt nobody has asked before."""
    prompt = [rng.randrange(300, 1500) for _ in range(request.prompt_tokens)]
    asked = {"model": "tiny", "prompt": prompt, "max_tokens": request.output_tokens, "temperature": 0.0}
    return json.dumps({**asked, "ignore_eos": True, "stream": True, "return_token_ids": True}).encode()
