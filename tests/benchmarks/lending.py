"""What lending replicas between the roles brings: against every fixed ratio, in virtual time, with the production
router and pool controller.

First a recorded trace at three times its speed, from a ratio that cannot serve it; then traffic that turns from long
prompts to long answers and back. There requests count that come from `SETTLE_S` after each turn on, and each phase is
held against the ratio that is best in it. The figures are the same on every machine.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.planning import minds
from cluster.planning.gateway import Gateway
from cluster.planning.lending import Lending, Lent
from cluster.planning.outcome import Outcome, Record
from cluster.planning.settings import split
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace
from cluster.planning.trace_files import read_mooncake
from cluster.pools.controller import PoolController
from cluster.pools.settings import LendingSettings
from cluster.pools.split import Split
from routing.rates import Rates
from tests.benchmarks import machine
from tests.benchmarks.routing import TRACE, traces
from tests.benchmarks.routing_policies import LENDING
from tests.benchmarks.routing_rows import BLOCK_TOKENS, FREE, LOOK_EVERY_S, SEED, SLO, engine, profile
from tests.benchmarks.shifts import Kind, shifting

WORKERS = 8
SPEED = 3.0
QUICK_REQUESTS = 1_500
FIXED = tuple(Split(prefill, WORKERS - prefill) for prefill in (6, 5, 4, 3, 2))
SETTLE_S = 10.0
PHASE_S = 60.0
LONG_PROMPTS = Kind("long prompts", 8_000, 60, 26.0)
LONG_ANSWERS = Kind("long answers", 4_000, 1_000, 15.0)
PHASES = (LONG_PROMPTS, LONG_ANSWERS, LONG_PROMPTS)


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a trace, from one ratio; `history` is None where it is fixed."""

    start: Split
    outcome: Outcome
    history: Sequence[Lent] | None

    def __str__(self) -> str:
        return str(self.start) if self.history is None else f"lending from {self.start}"


def run(start: Split, trace: Trace, lends: LendingSettings | None) -> Run:
    """Simulate it, with lending where there are settings for it."""
    rates = profile(FREE)
    gateway = Gateway(0, minds.kv_aware(rates, SLO.itl_s), random.Random(SEED))
    simulation = Simulation(split(start.prefill, start.decode, engine(FREE)), [gateway], trace)
    if lends is None:
        return Run(start, simulation.run(), None)
    lending = Lending(simulation, PoolController(lends, Rates(rates)), LOOK_EVERY_S)
    outcome = simulation.run()
    simulation.check()
    return Run(start, outcome, lending.history)


def good(records: Sequence[Record]) -> int:
    """How many kept their targets."""
    return sum(record.keeps(SLO) for record in records)


def settled(outcome: Outcome, phase: int) -> list[Record]:
    """The requests of a phase, once what it brought had time to be answered."""
    start_s = phase * PHASE_S
    return [r for r in outcome.records if start_s + SETTLE_S <= r.arrival_s < start_s + PHASE_S]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"a smoke run: the first {QUICK_REQUESTS:,} requests")
    parser.add_argument("--only", choices=["trace", "shifts"], help="one of the two parts")
    options = parser.parse_args()
    print(machine.describe())
    print(f"goodput: TTFT at most {SLO.ttft_s:g} s and mean ITL at most {1000 * SLO.itl_s:g} ms; {WORKERS} workers")
    if options.only != "shifts":
        recorded(QUICK_REQUESTS if options.quick else None)
    if options.only != "trace":
        shifts()


def recorded(first: int | None) -> None:
    """The trace, from a ratio that is wrong for it."""
    trace = read_mooncake(traces() / TRACE, BLOCK_TOKENS)
    trace = (trace.first(first) if first else trace).faster(SPEED)
    print(f"\n{TRACE} at {SPEED:g}x, {len(trace):,} requests")
    best = 0
    for start, lends in [*((s, None) for s in FIXED), (FIXED[0], LENDING), (FIXED[-1], LENDING)]:
        done = run(start, trace, lends)
        kept, summary = good(done.outcome.records), done.outcome.summary(SLO)
        best = max(best, 0 if lends else kept)
        said = f"{kept:6,} good, TTFT p99 {summary.ttft_p99_s:6.2f} s, ITL p99 {1000 * summary.itl_p99_s:5.1f} ms"
        print(f"  {done!s:18} {said}{_ratio(kept, best) if lends else ''}", flush=True)
        _tell(done.history)


def shifts() -> None:
    """Turns of the traffic, each phase against the ratio that is best in it."""
    trace = shifting(PHASES, PHASE_S, BLOCK_TOKENS)
    names = ", ".join(kind.name for kind in PHASES)
    print(f"\n{names}: {PHASE_S:g} s each, {len(trace):,} requests, those from {SETTLE_S:g} s after each turn on")
    best = [0] * len(PHASES)
    for start, lends in [*((s, None) for s in FIXED), (FIXED[0], LENDING), (FIXED[-1], LENDING)]:
        done = run(start, trace, lends)
        phases = [settled(done.outcome, phase) for phase in range(len(PHASES))]
        kept = [good(records) for records in phases]
        best = best if lends else [max(pair) for pair in zip(best, kept, strict=True)]
        said = "  ".join(f"{count:5,} of {len(records):5,}" for count, records in zip(kept, phases, strict=True))
        ratio = "".join(_ratio(*pair) for pair in zip(kept, best, strict=True)) if lends else ""
        print(f"  {done!s:18} {said}{ratio}", flush=True)
        _tell(done.history)


def _ratio(kept: int, best: int) -> str:
    return f"  {kept / best:.3f} of the best" if best else ""


def _tell(history: Sequence[Lent] | None) -> None:
    for at_s in dict.fromkeys(lent.at_s for lent in history or ()):
        made = [lent.change for lent in history or () if lent.at_s == at_s]
        print(f"    {at_s:7.1f} s: {', '.join(change.replica_id for change in made)}: {made[0].why}")


if __name__ == "__main__":
    main()
