"""The only prefill worker is killed and kept down: how many are served after that, and how soon they begin, beside a
fleet that never had one.

Both fleets serve at the same time, each a `baton serve` of its own with two decode workers, and answer the same
requests in turns. What the other needs for a first token is what computing prompts on decode explains. Few ask at once,
and the gateways let them wait: how much a fleet takes before it refuses is another question.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.models.fetch import resolve
from tests.benchmarks.machine import describe
from tests.benchmarks.spread import percentile, ratios, show, spread
from tests.chaos.load import Load, Tally, Target
from tests.chaos.parts import Parts
from tests.chaos.requests import References, Requests, Shape
from tests.support.driver import Driver
from tests.support.serving import config_of

CLIENTS = 4
WAIT_S = 60
SHAPE = Shape(most_prompt=500, least_answer=3, most_answer=6)
ENGINE = {"prefill_tokens_per_s": "2000", "decode_step_s": "0.03", "decode_request_s": "0.0005"}
SERVED, RATIO = 0.999, 1.1
"""The goals."""
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Fleet:
    """One that serves."""

    driver: Driver
    target: Target


@contextmanager
def serving(prefill: int, seed: int, folder: Path) -> Iterator[Fleet]:
    """So many prefill workers and two for decode."""
    changes = {"prefill.replicas": str(prefill), "decode.replicas": "2", "gateway.admission.max_wait_s": str(WAIT_S)}
    changes |= {f"{pool}.engine.{key}": value for pool in ("prefill", "decode") for key, value in ENGINE.items()}
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    config = config_of("simulated.yaml")
    references = References(config, Path(resolve(config.model.path)))
    with Driver(folder / f"{prefill}.log", "configs/simulated.yaml", *sets) as driver:
        driver.await_up(300)
        yield Fleet(driver, Target(driver.url, config.model.name, Requests(seed, SHAPE, leaving=0.0), references))
        driver.end(signal.SIGINT)


@asynccontextmanager
async def kept_down(parts: Parts) -> AsyncIterator[None]:
    """Kill the prefill worker. Each that comes in its place is stopped when it is seen, and so never serves."""

    async def stop() -> None:
        while True:
            await asyncio.to_thread(signal_all, parts, signal.SIGSTOP)
            await asyncio.sleep(LOOK_EVERY_S)

    signal_all(parts, signal.SIGKILL)
    stopping = asyncio.create_task(stop())
    try:
        yield
    finally:
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping
        signal_all(parts, signal.SIGKILL)


def signal_all(parts: Parts, number: signal.Signals) -> None:
    """To every prefill worker there is."""
    for part in parts.of("prefill"):
        with suppress(ProcessLookupError):
            part.signal(number)


async def answered(fleet: Fleet, numbers: range) -> Tally:
    """What became of these requests."""
    load = Load(fleet.target, CLIENTS, numbers)
    await load.run()
    return load.total


async def run(bereft: Fleet, never_had: Fleet, rounds: int, size: int) -> dict[str, list[Tally]]:
    """Rounds of both, in turns. The prefill worker dies while the first of them is being served."""
    found: dict[str, list[Tally]] = {"killed": [], "none": []}
    undisturbed = await answered(bereft, range(size))
    print(f"with the prefill worker: {undisturbed}", file=sys.stderr)
    async with kept_down(Parts(bereft.driver.mark)):
        for number in range(1, rounds + 1):
            numbers = range(number * size, (number + 1) * size)
            for name, fleet in (("killed", bereft), ("none", never_had)):
                found[name].append(await answered(fleet, numbers))
                print(f"round {number}/{rounds}, {name}: {found[name][-1]}", file=sys.stderr)
    return found


def report(found: dict[str, list[Tally]]) -> bool:
    """Print the figures; whether the goals are met."""
    after = Tally.sum(found["killed"])
    served = after.whole / after.asked
    print(f"  served after the kill: {after.whole} of {after.asked}, {served:.2%} (goal: at least {SERVED:.1%})")
    print("\n".join(f"    {problem}" for problem in [*after.complaints, *after.wrong]))
    worst = 0.0
    for name, share in (("median", 0.5), ("p99", 0.99)):
        ours, theirs = ([percentile(each.first_s, share) for each in found[key]] for key in ("killed", "none"))
        ratio = ratios(ours, theirs)
        worst = max(worst, ratio.median)
        print(f"  first token, {name}: killed {spread(ours)} s, never had one {spread(theirs)} s, ratio {ratio}")
    print(f"  goal for both ratios: at most {show(RATIO)}")
    return served >= SERVED and worst <= RATIO


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=250, help="requests in a round")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="default: by chance")
    options = parser.parse_args()
    print(f"{describe()}\nseed {options.seed}, {options.rounds} rounds of {options.size} requests, {CLIENTS} at a time")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bereft, never_had = (stack.enter_context(serving(count, options.seed, folder)) for count in (1, 0))
        found = asyncio.run(run(bereft, never_had, options.rounds, options.size))
    sys.exit(not report(found))


if __name__ == "__main__":
    main()
