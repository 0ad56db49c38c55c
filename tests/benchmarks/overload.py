"""Three times as much as a cluster can take, over HTTP, on simulated engines and real Ray, at the default settings.

First what the cluster can take: clients that come one after the other, and come back when they are told to. Then three
times as much at random moments, half as much at once after it, and two tenants that both ask for more than their share,
one for three times as much as the other. Once with prompts that keep prefill busy and short answers, once with short
prompts and answers that fill decode. Steps are slow, so that the machine is not what is short.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from configs.schema import GatewayConfig
from tests.benchmarks.machine import describe
from tests.benchmarks.overload_load import Clients, Kind, Try
from tests.benchmarks.spread import percentile, show, spread
from tests.support.driver import Driver

KINDS = [Kind("prefill is short", 600, range(4, 5)), Kind("decode is short", 40, range(10, 41))]
ENGINE = {
    "prefill_tokens_per_s": 1500,
    "max_running": 8,
    "decode_step_s": 0.1,
    "decode_request_s": 0.0001,
}
PREFILLS, DECODES = 2, 2
TIMES, TIMES_AFTER, TIMES_TENANTS = 3.0, 0.5, 6.0
WINDOW_S = 10.0
MAX_WAIT_S = GatewayConfig().admission.max_wait_s or 0.0
SLACK_S = 1.0
"""As usual is what takes no longer than alone and this: others are there, too, and steps that are under way."""
MOST_UNUSUAL = 0.05
"""Of all requests after the overload so many may fare otherwise: a busy machine stands still now and then."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured with one kind of request. `from_s` to `to_s` was the overload."""

    kind: Kind
    alone_s: float
    per_s: float
    tries: Sequence[Try]
    after: Sequence[Try]
    tenants: Sequence[Try]
    from_s: float
    to_s: float


@contextmanager
def deployment(folder: Path) -> Iterator[str]:
    """A fleet at the default settings; its address."""
    pools = {"prefill": PREFILLS, "decode": DECODES}
    changes = {f"{pool}.engine.{key}": value for pool in pools for key, value in ENGINE.items()}
    changes |= {f"{pool}.replicas": replicas for pool, replicas in pools.items()}
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    with Driver(folder / "overload.log", "configs/simulated.yaml", *sets) as driver:
        driver.await_up(300)
        yield driver.url
        driver.end(signal.SIGINT)


async def measure(url: str, kind: Kind, seconds: float, seed: int) -> Run:
    """All of it with one kind of request."""
    rng = random.Random(seed)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        clients = Clients(http, kind, rng)
        await clients.in_turns(8, 5.0)  # what the router has to learn of these engines
        alone_s = percentile([each.ttft_s for each in await clients.alone(10)], 0.5)
        per_s = await capacity(clients, seconds / 2)
        print(f"{kind.name}: {per_s:.2f} requests a second", file=sys.stderr)
        from_s = time.monotonic()
        over = asyncio.create_task(clients.at_random(TIMES * per_s, seconds))
        await asyncio.sleep(seconds)
        to_s = time.monotonic()
        after = await clients.at_random(TIMES_AFTER * per_s, 10.0)
        tries = await over
        shares = ["greedy"] * 3 + ["modest"]
        tenants = await clients.at_random(TIMES_TENANTS * per_s, seconds / 2, lambda: rng.choice(shares))
    return Run(kind, alone_s, per_s, tries, after, tenants, from_s, to_s)


async def capacity(clients: Clients, seconds: float) -> float:
    """Requests a second of clients that are always more than can be served."""
    began = time.monotonic()
    tries = await clients.in_turns(64, seconds)
    return served(tries, began + 0.2 * seconds, began + seconds) / (0.8 * seconds)


def served(tries: Sequence[Try], from_s: float, to_s: float) -> float:
    """Requests in this time: of each the share of its answer that came then, as tokens come evenly."""
    shares = 0.0
    for each in tries:
        if each.first_at is not None and each.ended_at is not None:
            took_s = max(each.ended_at - each.first_at, 1e-6)
            shares += max(0.0, min(to_s, each.ended_at) - max(from_s, each.first_at)) / took_s
    return shares


def report(run: Run) -> Iterator[str]:
    """Lines of figures."""
    answered = [each for each in run.tries if each.first_at is not None]
    refused = [each for each in run.tries if each.refused_at is not None]
    ttft_s = [each.ttft_s for each in answered]
    target_s = MAX_WAIT_S + 2 * run.alone_s
    outputs = f"{run.kind.outputs[0]} to {run.kind.outputs[-1]}"
    yield f"{run.kind.name}: {run.kind.prompt} tokens of prompt, {outputs} of output, {run.per_s:.2f} a second"
    yield f"  {len(run.tries)} came in {run.to_s - run.from_s:.0f} s, {len(refused) / len(run.tries):.0%} were refused"
    yield (
        f"  time to first token of the others: {show(percentile(ttft_s, 0.5))} s at p50,"
        f" {show(percentile(ttft_s, 0.99))} s at p99 (target {show(target_s)} s; alone {show(run.alone_s)} s)"
    )
    goodput = spread([each / run.per_s for each in good_per_s(run, target_s)])
    yield f"  goodput / capacity in {WINDOW_S:.0f} s: {goodput} (goal: at least 0.95)"
    exact, told = truth(run, [each.retry_after_s for each in refused]), truth(run, [each.told_s for each in refused])
    yield f"  Retry-After is right within half for {within_half(told):.1%}, retry-after-ms for {within_half(exact):.1%}"
    yield f"  as usual {recovered_s(run):.1f} s after (goal: at most 5)"
    yield f"  of two tenants one sends three requests of four: it got {greedy_share(run):.1%} (goal: half)"


def good_per_s(run: Run, target_s: float) -> Iterator[float]:
    """Requests served in each window of the overload, of those that kept the target; the first seconds fill up."""
    good = [each for each in run.tries if each.first_at is not None and each.ttft_s <= target_s]
    from_s = run.from_s + WINDOW_S / 2
    while from_s + WINDOW_S <= run.to_s + WINDOW_S / 10:
        yield served(good, from_s, from_s + WINDOW_S) / WINDOW_S
        from_s += WINDOW_S


def truth(run: Run, told_s: Sequence[float]) -> list[float]:
    """What each of the refused was told, over how long the last one took that had come before and went."""
    refused = [each for each in run.tries if each.refused_at is not None]
    went = [(each.sent_at, each.first_at - run.alone_s) for each in run.tries if each.first_at is not None]
    ratios = []
    for each, seconds in zip(refused, told_s, strict=True):
        assert each.refused_at is not None
        last = max((at for sent_at, at in went if sent_at <= each.refused_at), default=0.0) - each.refused_at
        if last > 0:
            ratios.append(seconds / last)
    return ratios


def within_half(found: Sequence[float]) -> float:
    """The share of ratios from a half to one and a half."""
    return sum(0.5 <= ratio <= 1.5 for ratio in found) / len(found)


def recovered_s(run: Run) -> float:
    """From the end of the overload until the last request came that did not fare as usual, a few aside."""
    usual_s = run.alone_s + SLACK_S
    unusual = sorted(t.sent_at for t in run.after if t.first_at is None or t.ttft_s > usual_s)
    lasting = unusual[: max(0, len(unusual) - int(MOST_UNUSUAL * len(run.after)))]
    return max(lasting, default=run.to_s) - run.to_s


def greedy_share(run: Run) -> float:
    """Of what was served while both tenants waited: at first the line is empty, and whoever comes goes."""
    since_s = min(each.sent_at for each in run.tenants) + WINDOW_S / 2
    tenants = [each.tenant for each in run.tenants if each.ended_at is not None and each.sent_at >= since_s]
    return tenants.count("greedy") / len(tenants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="20 seconds")
    options = parser.parse_args()
    seconds = 20.0 if options.quick else options.seconds
    with tempfile.TemporaryDirectory() as folder, deployment(Path(folder)) as url:
        runs = [asyncio.run(measure(url, kind, seconds, options.seed)) for kind in KINDS]
    print(describe())
    print(f"{PREFILLS} prefill and {DECODES} decode workers, simulated engines; who waits does so for {MAX_WAIT_S:g} s")
    for run in runs:
        print("\n".join(report(run)))


if __name__ == "__main__":
    main()
