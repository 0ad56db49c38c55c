"""What a routing decision costs, and the index under it, beside Dynamo's router from its wheel.

Each side is a process of its own, over the same workload (`router_workload.py`). They take turns, in an order that
alternates; a figure is the median over rounds of the round's median, a ratio is taken round by round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import machine
from tests.benchmarks.router_report import Figures, as_text
from tests.benchmarks.targets import dynamo

ROOT = Path(__file__).parents[2]
FLEETS = (8, 64, 512)
PROMPT_TOKENS = (2_048, 8_192)
INDEX_FLEET = 64
STORE_CHUNK, REMOVE_CHUNK = 100, 100
STOP_DEADLINE_S = 10.0


class Side:
    """One process that does orders."""

    def __init__(self, name: str, python: str, module: str, more: Mapping[str, str] | None = None) -> None:
        """`more`: of its environment."""
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DYN_LOG": "error", **(more or {})}
        self._process = subprocess.Popen(
            [python, "-m", module], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, order: str, **arguments: int | str) -> Any:
        """The result of one order. Raises RuntimeError when the process ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": order, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended over {order}")
        return json.loads(line)

    def stop(self) -> None:
        """No more orders."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)


def main() -> None:
    options = parse()
    figures: Figures = defaultdict(list)
    rivals = dynamo.installed()
    if not rivals:
        say("dynamo: left out: make bench-peers has not been run")
    with both(rivals) as sides:
        say(f"index: {options.blocks:,} blocks over {INDEX_FLEET} workers")
        measure_index(sides, figures, options)
    for workers in options.fleets:
        with both(rivals) as sides:
            say(f"decisions: {workers} workers")
            measure_decisions(sides, figures, workers, options)
    print(machine.describe())
    print(as_text(figures, options.blocks))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--fleets", type=int, nargs="+", default=list(FLEETS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=100, help="lookups or decisions in a round")
    parser.add_argument("--quick", action="store_true", help="a smoke run: fewer blocks, three short rounds")
    options = parser.parse_args()
    if options.quick:
        options.blocks, options.rounds, options.count = 100_000, 3, 30
    return options


def say(line: str) -> None:
    """Progress; the report alone goes to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


@contextmanager
def both(rivals: bool) -> Iterator[list[Side]]:
    """Our process, and the rival's where it is installed."""
    with ExitStack() as stack:
        sides = [Side("ours", sys.executable, "tests.benchmarks.router_ours")]
        stack.callback(sides[0].stop)
        if rivals:
            sides.append(Side("dynamo", str(dynamo.PYTHON), "tests.benchmarks.router_dynamo"))
            stack.callback(sides[1].stop)
        yield sides


def in_turns(sides: Sequence[Side], rounds: int, act: Callable[[Side, int], None]) -> None:
    """Every side, `rounds` times, the order alternating."""
    for number in range(rounds):
        for side in sides if number % 2 else list(reversed(sides)):
            act(side, number)


def measure_index(sides: Sequence[Side], figures: Figures, options: argparse.Namespace) -> None:
    """Events, memory and lookups of the index alone."""
    sequences = max([side.do("prepare", workers=INDEX_FLEET, blocks=options.blocks) for side in sides])

    def store(side: Side, number: int) -> None:
        timed = side.do("store", first=number * STORE_CHUNK, last=min(sequences, (number + 1) * STORE_CHUNK))
        for clock, us in timed.items():
            figures[side.name, "stored", clock].append(us)

    def remove(side: Side, number: int) -> None:
        first = number * REMOVE_CHUNK % (sequences - REMOVE_CHUNK)
        for clock, us in side.do("remove", first=first, last=first + REMOVE_CHUNK).items():
            figures[side.name, "removed", clock].append(us)

    def lookup(side: Side, number: int) -> None:
        times = side.do("lookup", count=options.count, seed=number)
        figures[side.name, "lookup", "wall_us"].append(1e6 * statistics.median(times))

    in_turns(sides, -(-sequences // STORE_CHUNK), store)
    for side in sides:
        for kind, size in side.do("memory").items():
            figures[side.name, "memory", kind].append(size)
    in_turns(sides, options.rounds, lookup)
    in_turns(sides, options.rounds, remove)


def measure_decisions(sides: Sequence[Side], figures: Figures, workers: int, options: argparse.Namespace) -> None:
    """Whole decisions over a fleet of so many workers."""
    for side in sides:
        if side.name == "ours":
            sequences = side.do("prepare", workers=workers, blocks=options.blocks)
            side.do("store", first=0, last=sequences)
        else:
            known = side.do("service", workers=workers, blocks=options.blocks)
            say(f"dynamo: {known['found']} of {known['probed']} sequences found in full")
    for tokens in PROMPT_TOKENS:

        def cycle(side: Side, number: int, tokens: int = tokens) -> None:
            for part, times in side.do("cycle", tokens=tokens, count=options.count, seed=number).items():
                figures[side.name, f"{workers} workers, {tokens:,} tokens", part].append(1e6 * statistics.median(times))

        in_turns(sides, options.rounds, cycle)


if __name__ == "__main__":
    main()
