"""Sends a service as many requests as it can answer and watches what its processes take: `make soak`.

Two prefill and two decode workers with quick simulated engines, on two nodes of a private Ray. Prompts that nobody has
sent before, short ones and ones that are handed over from node to node; clients that leave, and requests that must be
refused (`tests.chaos.crowd`). Once a minute each process says what it has: memory of its own, file descriptors,
threads. In the end, how much more each had per 100,000 requests, once its caches were full.
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
from tests.benchmarks.machine import describe
from tests.chaos import rest
from tests.chaos.crowd import Plan, Result
from tests.chaos.fleet import ENGINE, fleet
from tests.chaos.growth import Growth, Sample, growth_of
from tests.chaos.memory import MEASURED, own_bytes
from tests.chaos.parts import Parts
from tests.support.serving import Served, two_nodes

WORKERS = 2
"""Of each kind."""
QUICK = {"prefill_tokens_per_s": 20_000, "decode_step_s": 0.001, "decode_request_s": 0.00001}
"""Of the engines: what is soaked is everything around them."""
CLIENTS = 24
LOOK_S, SAY_S, REST_S = 5.0, 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where the load goes, and how much of it."""

    served: Served
    port: int
    requests: int
    seconds: float

    @property
    def plan(self) -> Plan:
        """What the crowd is told."""
        return Plan(self.port, self.served.model, CLIENTS, self.requests, self.seconds)


async def offer(plan: Plan) -> Result:
    """What the crowd asked. It is a process of its own. Raises `RuntimeError` when an answer was wrong."""
    words = (sys.executable, "-m", "tests.chaos.crowd", msgspec.json.encode(plan).decode())
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the crowd ended with {process.returncode}")
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
        result = await offer(target.plan)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    asked, seconds = sum(result.asked.values()), time.monotonic() - began
    print(
        f"{asked} requests in {seconds:.0f} s: {asked / seconds:.0f} a second, all answered as they must be", flush=True
    )
    print("  " + ", ".join(f"{count} {kind}" for kind, count in sorted(result.asked.items())), flush=True)
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
