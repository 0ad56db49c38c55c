"""Lets faults loose on a fleet under load, and judges what its clients and its books say: `make chaos`.

Four prefill and four decode workers with simulated engines on two nodes of a private Ray, 64 clients of which one in
ten hangs up, a fault every ten seconds. No stream may break or hold a wrong token; when all is over nobody holds
anything, and memory is where it was when the caches were full.
"""

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.models.fetch import resolve
from cluster.runtime.flags import serve_flags
from cluster.runtime.mark import current
from tests.benchmarks.machine import describe
from tests.chaos import memory, rest
from tests.chaos.faults import CATALOGUE, DEFAULT
from tests.chaos.fleet import fleet
from tests.chaos.load import Load, Target
from tests.chaos.parts import Parts
from tests.chaos.requests import References, Requests, Shape
from tests.chaos.storm import Plan, storm
from tests.support.serving import Served, two_nodes

WORKERS = 4
"""Of each kind."""
WHOLE_S, REST_S = 60.0, 15.0
"""What may pass, after the last fault, until all workers are back, and after the last answer, until nothing is held."""
GROWTH = 1.05
TOLD = ("baton_resumed_total", "baton_attempts_total", "baton_handoffs_total", "baton_kv_recomputed_blocks_total")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that must hold: what was seen, and whether it does."""

    name: str
    seen: str
    holds: bool

    def __str__(self) -> str:
        return f"  {'holds ' if self.holds else 'BROKEN'}  {self.name}: {self.seen}"


async def run(served: Served, target: Target, plan: Plan, clients: int, warm_s: float) -> list[Verdict]:
    """The whole run on a fleet that serves."""
    parts, load = Parts(current()), Load(target, clients, itertools.count())
    await rest.whole(served, 2 * WORKERS, WHOLE_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        await asyncio.sleep(warm_s)
        print(f"undisturbed for {warm_s:g} s: {load.cut()}", flush=True)
        before = memory.taken(parts)
        await storm(plan, parts, load, lambda said: print(said, flush=True))
        await asyncio.sleep(plan.every_s)
        load.finish()
    print(f"after the last fault: {load.cut()}", flush=True)
    print(_history(await asyncio.to_thread(served.metrics)), flush=True)
    return [*_streams(load), *await _books(served), *_memory(before, parts)]


def _history(metrics: Mapping[str, float]) -> str:
    """What the gateway did about it: a run without these has shown nothing."""
    told = (f"{name.removeprefix('baton_')} {value:,.0f}" for name, value in metrics.items() if name.startswith(TOLD))
    return f"the gateway counted: {', '.join(told)}"


def _streams(load: Load) -> list[Verdict]:
    total = load.total
    for complaint in [*total.complaints, *total.wrong]:
        print(f"  {complaint}")
    return [
        Verdict("no stream broke", f"{len(total.complaints)} of {total.asked}", not total.complaints),
        Verdict("no token was wrong", f"{len(total.wrong)} of {total.asked}", not total.wrong),
    ]


async def _books(served: Served) -> list[Verdict]:
    try:
        await rest.whole(served, 2 * WORKERS, WHOLE_S)
        missing = ""
    except AssertionError as error:
        missing = str(error)
    held, spoilt = await rest.held(served, REST_S), await rest.spoilt()
    return [
        Verdict("all workers are back", missing or "yes", not missing),
        Verdict("nothing is held", held or "nothing", not held),
        Verdict("the stores are sound", spoilt or "yes", not spoilt),
    ]


def _memory(before: Mapping[str, memory.Taken], parts: Parts) -> list[Verdict]:
    after = memory.taken(parts)
    return [
        Verdict(f"memory of {kind}", f"{before[kind]}, then {after[kind]} ({ratio:.3f})", ratio <= GROWTH)
        for kind, ratio in memory.growth(before, after).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="default: by chance")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two faults")
    parser.add_argument("--at-once", type=int, default=1, help="faults that strike together")
    parser.add_argument("--warm", type=float, default=60.0, help="seconds of load before the first fault")
    parser.add_argument("--faults", nargs="+", choices=sorted(CATALOGUE), default=list(DEFAULT))
    options = parser.parse_args()
    plan = Plan(options.seed, 60 * options.minutes, options.every, options.faults, options.at_once)
    print(f"{describe()}\nseed {plan.seed}, {options.clients} clients, faults: {', '.join(plan.faults)}", flush=True)
    path = str(resolve("tiny"))
    config = fleet(path, WORKERS, WORKERS)
    with two_nodes(serve_flags()) as cluster, cluster.serve(config) as served:
        target = Target(served.url, config.model.name, Requests(plan.seed, Shape()), References(config, Path(path)))
        verdicts = asyncio.run(run(served, target, plan, options.clients, options.warm))
    print("\n".join(str(each) for each in verdicts))
    sys.exit(not all(each.holds for each in verdicts))


if __name__ == "__main__":
    main()
