"""A hot shared prefix, live on simulated engines: our router against least-loaded placement.

Four workers that prefill and decode themselves, 64 requests at once with the same 900-token prefix and a few tokens of
their own, 200 tokens of output each. Both policies serve at the same time, each with its own workers and gateway, and
take turns. Caches are warm after the first round, which is left out.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from cluster.gateway.route_header import HEADER, parse
from tests.benchmarks.machine import describe
from tests.benchmarks.spread import ratios, show, spread
from tests.support.driver import Driver

WORKERS = 4
CONCURRENT = 64
PREFIX, OWN, OUTPUT = 900, 20, 200
POLICIES = {"kv_aware": "ours", "least_work": "least-loaded"}
GOAL = 1.05


@dataclass(frozen=True, slots=True)
class Round:
    """Mean latency in seconds, and how many requests each worker decoded."""

    mean_s: float
    placed: Counter[str]


@contextmanager
def deployment(policy: str, folder: Path) -> Iterator[str]:
    """Four simulated workers under a policy; its address."""
    changes = {
        "router.policy": policy,
        "gateway.explain_header": "true",
        "prefill.replicas": "0",
        "decode.replicas": str(WORKERS),
    }
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    with Driver(folder / f"{policy}.log", "configs/simulated.yaml", *sets) as driver:
        driver.await_up(300)
        yield driver.url
        driver.end(signal.SIGINT)


async def measure(url: str, prefix: list[int], rng: random.Random) -> Round:
    """One burst."""
    limits = httpx.Limits(max_connections=CONCURRENT)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:

        async def one() -> tuple[float, str]:
            prompt = prefix + [rng.randrange(300, 1500) for _ in range(OWN)]
            body = {"model": "tiny", "prompt": prompt, "max_tokens": OUTPUT, "temperature": 0, "ignore_eos": True}
            began = time.perf_counter()
            answer = await http.post("/v1/completions", json=body)
            answer.raise_for_status()
            return time.perf_counter() - began, parse(answer.headers[HEADER.decode()])["decode"]

        asked = await asyncio.gather(*(one() for _ in range(CONCURRENT)))
    return Round(sum(took for took, _ in asked) / CONCURRENT, Counter(decode for _, decode in asked))


def run(rounds: int, seed: int) -> dict[str, list[Round]]:
    """All rounds of both policies, in turns."""
    rng = random.Random(seed)
    prefix = [rng.randrange(300, 1500) for _ in range(PREFIX)]
    measured: dict[str, list[Round]] = {policy: [] for policy in POLICIES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {policy: stack.enter_context(deployment(policy, folder)) for policy in POLICIES}
        for number in range(rounds + 1):
            for policy in sorted(POLICIES, reverse=bool(number % 2)):
                one = asyncio.run(measure(urls[policy], prefix, rng))
                print(f"round {number}/{rounds} {policy}: {one.mean_s:.2f} s", file=sys.stderr)
                if number:
                    measured[policy].append(one)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    measured = run(1 if options.quick else options.rounds, options.seed)
    print(describe())
    print(f"{CONCURRENT} at once, {PREFIX} tokens of prefix, {OUTPUT} of output, {WORKERS} simulated workers")
    for policy, name in POLICIES.items():
        rounds = measured[policy]
        least = min(min(each.placed.values()) if len(each.placed) == WORKERS else 0 for each in rounds)
        most = max(max(each.placed.values()) for each in rounds)
        print(
            f"  {name}: mean latency {spread([each.mean_s for each in rounds])} s, {least} to {most} requests a worker"
        )
    times = {policy: [each.mean_s for each in rounds] for policy, rounds in measured.items()}
    print(f"  ours / least-loaded: {ratios(times['kv_aware'], times['least_work'])} (goal: at most {show(GOAL)})")


if __name__ == "__main__":
    main()
