"""Fuzzes the wires: malformed frames at every end of every protocol, then whether everything is as it was.

`python -m tests.fuzz.frames --frames 10000 --seed 1`; with `--only VICTIM`, one of them. A finding is an error in the
log, a witness that did not get its answer, or anything an attack left behind.
"""

import argparse
import asyncio
import logging
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from tests.fuzz.footprint import ErrorLog, Footprint
from tests.fuzz.victim import Victim
from tests.fuzz.victims import VICTIMS

BATCH = 50
AT_ONCE = 5
REST_S = 5.0


@dataclass(slots=True)
class Tally:
    """What one campaign saw."""

    attacks: int = 0
    frames: int = 0
    findings: list[str] = field(default_factory=list)


async def campaign(victim: Victim, seed: int, frames: int, log: ErrorLog) -> Tally:
    """Attacks until so many frames were sent; after each batch the witness asks, and nothing is left."""
    tally = Tally()
    while tally.frames < frames and len(tally.findings) < 5:
        first = tally.attacks
        numbers = iter(range(first, first + BATCH))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(_some(victim, seed, numbers, tally))
        batch = f"{victim.name}, seed {seed}, attacks {first} to {first + BATCH - 1}"
        tally.findings += [f"{batch}: {found}" for found in await _after(victim, log)]
    return tally


async def _some(victim: Victim, seed: int, numbers: object, tally: Tally) -> None:
    for number in numbers:  # type: ignore[attr-defined]  # one iterator for all
        tally.frames += await victim.attack(random.Random(f"{victim.name} {seed} {number}"))
        tally.attacks += 1


async def _after(victim: Victim, log: ErrorLog) -> list[str]:
    findings = await victim.witness()
    try:
        findings += await _left(victim)
    except AssertionError as error:
        findings.append(f"broken books: {traceback.format_exc(limit=-2)} {error}")
    return findings + [f"logged {said}" for said in log.taken()]


async def _left(victim: Victim) -> list[str]:
    end = time.monotonic() + REST_S
    while (left := victim.left()) and time.monotonic() < end:  # noqa: ASYNC110  # nobody announces rest
        await asyncio.sleep(0.02)
    return [f"{what} left: {count}" for what, count in left.items()]


async def attack_one(make: Callable[[], AbstractAsyncContextManager[Victim]], seed: int, frames: int) -> Tally:
    """A victim's whole life, with what it uses before and after, once it is warm."""
    with ErrorLog() as log:
        async with make() as victim:
            tally = await campaign(victim, seed + 1_000_000, min(frames, 300), log)
            before, began = Footprint.now(), time.perf_counter()
            measured = await campaign(victim, seed, frames, log)
            seconds, after = time.perf_counter() - began, await Footprint.at_rest(before)
            measured.findings += tally.findings + before.growth(after)
    print(f"{victim.name}: seed {seed}, {measured.attacks} attacks, {measured.frames} frames in {seconds:.0f} s,"
          f" {len(measured.findings)} findings; {before} then {after}", flush=True)  # fmt: skip
    return measured


async def attack_all(
    victims: Mapping[str, Callable[[], AbstractAsyncContextManager[Victim]]], seed: int, frames: int
) -> int:
    """Each gets its share of the frames; how many findings there were."""
    found = 0
    for make in victims.values():
        tally = await attack_one(make, seed, frames // len(victims))
        print(*tally.findings, sep="\n", end="\n" if tally.findings else "")
        found += len(tally.findings)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=VICTIMS)
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    victims = VICTIMS if args.only is None else {args.only: VICTIMS[args.only]}
    return 1 if asyncio.run(attack_all(victims, args.seed, args.frames)) else 0


if __name__ == "__main__":
    sys.exit(main())
