"""Moving KV blocks between two stores: our TCP beside a raw socket loop, NIXL and Mooncake's engine from their wheels.

Each side is two processes on this machine, over loopback; they take turns in an order that alternates. A ratio is taken
round by round, the figure is the median over rounds. The rivals are measured where `make bench-peers` has been run.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import machine
from tests.benchmarks.router import Side, in_turns, say
from tests.benchmarks.spread import ratios, spread
from tests.benchmarks.store_cases import CASES

PEERS = Path(__file__).parents[2] / ".peers" / "transfer"
PYTHON = PEERS / "bin" / "python"
OURS = "ours"
Figures = dict[tuple[str, str, str], list[float]]
"""One entry a round, by side, case and what: `move` in bytes a second, `one` in microseconds."""

GOALS = {"raw sockets": "at least 0.9", "NIXL, UCX over TCP": "at least 2", "Mooncake, TCP": "at least 2"}


def main() -> None:
    options = parse()
    figures: Figures = defaultdict(list)
    for case in options.cases:
        with everybody(options) as sides:
            for side in sides:
                say(f"{case}: starting {side.name}")
                side.do("prepare", case=case)
            say(f"{case}: {options.rounds} rounds")
            measure(sides, case, figures, options)
            for side in sides:
                side.do("finish")
    print(machine.describe())
    print(as_text(figures, options))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one", type=int, default=100, help="single blocks in a round")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--without", nargs="+", default=[], help="sides to leave out, by name")
    parser.add_argument("--quick", action="store_true", help="a smoke run: three rounds")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.one = 3, 20
    return options


@contextmanager
def everybody(options: argparse.Namespace) -> Iterator[list[Side]]:
    """Every side that is installed, ended afterwards."""
    sides = [Side(OURS, sys.executable, "tests.benchmarks.store_ours")]
    sides.append(Side("raw sockets", sys.executable, "tests.benchmarks.store_raw"))
    if PYTHON.exists():
        sides += [Side(name, str(PYTHON), module, more) for name, (module, more) in rivals().items()]
    else:
        say("NIXL and Mooncake: left out: make bench-peers has not been run")
    try:
        yield [side for side in sides if side.name not in options.without]
    finally:
        for side in sides:
            side.stop()


def rivals() -> Mapping[str, tuple[str, Mapping[str, str]]]:
    """Module and environment of each."""
    quiet = {"NIXL_LOG_LEVEL": "ERROR", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    return {
        "NIXL, UCX over TCP": ("tests.benchmarks.store_nixl", {**quiet, "UCX_TLS": "tcp"}),
        "NIXL, shared memory": ("tests.benchmarks.store_nixl", quiet),
        "Mooncake, TCP": ("tests.benchmarks.store_mooncake", {"LD_LIBRARY_PATH": ibverbs(), "MC_LOG_LEVEL": "ERROR"}),
    }


def ibverbs() -> str:
    """Mooncake's wheel wants the system's libibverbs.so.1; NIXL's wheel brings one under another name."""
    folder = PEERS / "lib-ibverbs"
    folder.mkdir(exist_ok=True)
    wanted = folder / "libibverbs.so.1"
    (found,) = PEERS.glob("lib/python*/site-packages/nixl_cu12.libs/libibverbs-*.so*")
    if not wanted.exists():
        wanted.symlink_to(found)
    return f"{folder}:{found.parent}"


def measure(sides: Sequence[Side], case: str, figures: Figures, options: argparse.Namespace) -> None:
    """Every side once in a round; the first round is for warming up."""

    def act(side: Side, number: int) -> None:
        moved, one = side.do("move", number=number), side.do("one", count=options.one)
        if number:
            figures[side.name, case, "move"].append(moved)
            figures[side.name, case, "one"].append(one)

    in_turns(sides, options.rounds + 1, act)


def as_text(figures: Figures, options: argparse.Namespace) -> str:
    """One table."""
    rows = [["moved at once", "side", "GB/s", "ours over it", "goal", "one block, us", "n"]]
    for case in options.cases:
        ours = figures[OURS, case, "move"]
        for name in [side for side, of, what in figures if of == case and what == "move"]:
            speeds = figures[name, case, "move"]
            beside = "-" if name == OURS else str(ratios(ours, speeds))
            label = f"{CASES[case].blocks} x {case}"
            gbs, one = spread([speed / 1e9 for speed in speeds]), spread(figures[name, case, "one"])
            rows.append([label, name, str(gbs), beside, GOALS.get(name, ""), str(one), str(len(speeds))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


if __name__ == "__main__":
    main()
