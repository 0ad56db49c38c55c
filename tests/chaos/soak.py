"""Sends a service as many requests as it can answer and watches what its processes take: `make soak`.

Two prefill and two decode workers with simulated engines whose steps take no time, on two nodes of a private Ray; whole
and streamed answers of prompts that nobody has sent before. Once a minute each process says what it has: memory of its
own, file descriptors, threads. In the end, how much more each had per 100,000 requests, once its caches were full.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import psutil

from cluster.models.fetch import resolve
from cluster.runtime.flags import serve_flags
from cluster.runtime.mark import current
from tests.benchmarks.load import Plan, Result
from tests.benchmarks.machine import describe
from tests.chaos import rest
from tests.chaos.fleet import ENGINE, fleet
from tests.chaos.growth import Growth, Sample, growth_of
from tests.chaos.memory import MEASURED, own_bytes
from tests.chaos.parts import Parts
from tests.support.serving import Served, two_nodes

WORKERS = 2
"""Of each kind."""
WORDS = "the same words in another order make another prompt " * 3
TOKENS = 4
QUICK = {"prefill_tokens_per_s": 1e6, "decode_step_s": 0.001, "decode_request_s": 0.00001}
"""Of the engines: what is soaked is everything around them."""
CLIENTS = {False: 16, True: 8}
"""Connections of whole and of streamed answers."""
LOOK_S, SAY_S, REST_S = 5.0, 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where the load goes, and how much of it."""

    served: Served
    port: int
    requests: int
    seconds: float

    def plan(self, stream: bool) -> Plan:
        """One generator's part: by the number of its connections."""
        share = CLIENTS[stream] / sum(CLIENTS.values())
        return Plan(
            self.port, "/v1/completions", "tiny", WORDS, TOKENS, stream, CLIENTS[stream], self.seconds,
            requests=int(self.requests * share), seed=10**9 * stream,
        )  # fmt: skip


async def offer(plan: Plan) -> Result:
    """The generator's result. It is a process of its own. Raises `RuntimeError` when a reply was not whole."""
    words = (sys.executable, "-m", "tests.benchmarks.load", msgspec.json.encode(plan).decode())
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the load generator ended with {process.returncode}")
    return msgspec.json.decode(said, type=Result)


async def watch(target: Target, parts: Parts, samples: list[Sample]) -> None:
    """Look at every process until cancelled."""
    began, said = time.monotonic(), -SAY_S
    while True:
        now = await asyncio.to_thread(look, target.served, parts, time.monotonic() - began)
        samples += now
        if now and now[0].at_s - said >= SAY_S:
            said = now[0].at_s
            say(now)
        await asyncio.sleep(LOOK_S)


def look(served: Served, parts: Parts, at_s: float) -> list[Sample]:
    """Every process now."""
    metrics = served.metrics()
    requests = int(sum(value for name, value in metrics.items() if name.startswith("baton_requests_total")))
    seen = []
    for part in parts.of(*MEASURED):
        process = psutil.Process(part.pid)
        seen.append(Sample(str(part), at_s, requests, own_bytes(part.pid), process.num_fds(), process.num_threads()))
    return seen


def say(samples: Sequence[Sample]) -> None:
    """One moment."""
    print(f"{samples[0].at_s:5.0f} s, {samples[0].requests} requests", flush=True)
    for each in samples:
        print(f"    {each}", flush=True)


async def soak(target: Target, parts: Parts) -> list[Growth]:
    """The whole run on a service that serves; what became of each process."""
    samples: list[Sample] = []
    await rest.whole(target.served, 2 * WORKERS, REST_S)
    began = time.monotonic()
    watching = asyncio.create_task(watch(target, parts, samples))
    try:
        results = await asyncio.gather(*(offer(target.plan(stream)) for stream in CLIENTS))
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    replies, seconds = sum(result.replies for result in results), time.monotonic() - began
    print(f"{replies} requests in {seconds:.0f} s: {replies / seconds:.0f} a second, every reply whole", flush=True)
    held = await rest.held(target.served, REST_S)
    assert not held, f"still held: {held}"
    return growth_of(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500_000)
    parser.add_argument("--minutes", type=float, default=120.0, help="stop after so long, with fewer requests")
    options = parser.parse_args()
    print(describe(), flush=True)
    config = fleet(str(resolve("tiny")), WORKERS, WORKERS, ENGINE | QUICK)
    with two_nodes(serve_flags()) as cluster, cluster.serve(config) as served:
        port = int(served.url.rpartition(":")[2])
        target = Target(served, port, options.requests, 60 * options.minutes)
        grown = asyncio.run(soak(target, Parts(current())))
    print("per 100,000 requests, by a line through the second half of the run:")
    for each in grown:
        print(f"  {each}")
    sys.exit(not all(each.is_flat for each in grown))


if __name__ == "__main__":
    main()
