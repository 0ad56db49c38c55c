"""Lending replicas between the roles, live: eight simulated workers, real Ray, the real data plane.

Traffic turns from long prompts to long answers and back. What the pool controller keeps of it, from six prefill
workers and from two, is held against fixed ratios of the same workers, pinned by hand, each with the traffic of one
phase alone. Requests count that come from `SETTLE_S` after each turn on. `make bench-lending` has the same in virtual
time, with every ratio.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.planning.outcome import Slo
from cluster.pools.split import Split
from cluster.runtime.folders import run_folder
from cluster.runtime.ticket import FILE, Ticket
from tests.benchmarks.machine import describe
from tests.benchmarks.pools_traffic import Fared, send
from tests.benchmarks.shifts import Kind, shifting
from tests.benchmarks.spread import percentile, show, spread
from tests.support.driver import Driver

if TYPE_CHECKING:
    from cluster.cli.far_workers import FarRoles

WORKERS = 8
SLO = Slo(ttft_s=2.0, itl_s=0.1)
ENGINE = {"prefill_tokens_per_s": 1500, "decode_step_s": 0.03, "decode_request_s": 0.005, "max_running": 32}
"""Slow, so that it is the engines that limit and not the machine they are simulated on."""

LONG_PROMPTS = Kind("long prompts", 400, 8, 12.0)
LONG_ANSWERS = Kind("long answers", 60, 100, 6.5)
PHASES = (LONG_PROMPTS, LONG_ANSWERS, LONG_PROMPTS)
FIXED = {
    LONG_PROMPTS: (Split(6, 2), Split(5, 3), Split(4, 4)),
    LONG_ANSWERS: (Split(2, 6), Split(3, 5), Split(4, 4)),
}
STARTS = (Split(6, 2), Split(2, 6))
SETTLE_S = 10.0
BY_HAND = "for the benchmark"
GOAL, CHANGES_A_MINUTE = 0.95, 1.0


@dataclass(frozen=True, slots=True)
class Phase:
    """What became of the requests of one kind; `settled` are those that count."""

    kind: Kind
    all: Sequence[Fared]
    settled: Sequence[Fared]

    @property
    def good(self) -> float:
        """The share of those that count which kept both targets."""
        return sum(each.keeps(SLO) for each in self.settled) / len(self.settled)

    def __str__(self) -> str:
        ttft_s, itl_s = ([getattr(each, name) for each in self.settled] for name in ("ttft_s", "itl_s"))
        p99 = f"TTFT p99 {show(percentile(ttft_s, 0.99))} s, ITL p99 {show(1000 * percentile(itl_s, 0.99))} ms"
        return f"{self.kind.name}: {self.good:6.1%} of {len(self.settled)} good, {p99}"


@dataclass(frozen=True, slots=True)
class Change:
    """The controller's, of one or more workers: seconds after the traffic began."""

    at_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Lent:
    """One run with the controller free to lend."""

    start: Split
    phases: Sequence[Phase]
    changes: Sequence[Change]


class Bench:
    """One deployment, and the traffic of all phases."""

    def __init__(self, url: str, roles: "FarRoles", phase_s: float, seed: int) -> None:
        self._url = url
        self._roles = roles
        self._phase_s = phase_s
        self._requests = shifting(PHASES, phase_s, block_tokens=16, seed=seed).requests
        self._rng = random.Random(seed)

    def fixed(self, kind: Kind, ratio: Split) -> Phase:
        """The first phase of this kind alone, with nobody lent."""
        self._set(ratio, pinned=True)
        number = PHASES.index(kind)
        of = [each for each in self._requests if self._in(number, each.arrival_s)]
        phase = self._phase(number, asyncio.run(send(self._url, of, self._rng)))
        print(f"{ratio} {phase}", file=sys.stderr)
        return phase

    def lending(self, start: Split) -> Lent:
        """All phases, one after the other."""
        self._set(start, pinned=True)
        began = time.time()
        self._set(start, pinned=False)
        fared = asyncio.run(send(self._url, self._requests, self._rng))
        phases = [self._phase(number, fared) for number in range(len(PHASES))]
        print(f"lending from {start}: {', '.join(map(str, phases))}", file=sys.stderr)
        return Lent(start, phases, self._changes(began))

    def steady(self, change: Change) -> bool:
        """Whether it came when the traffic had not turned for a while."""
        return change.at_s % self._phase_s >= SETTLE_S

    def _in(self, phase: int, at_s: float) -> bool:
        return phase * self._phase_s <= at_s < (phase + 1) * self._phase_s

    def _phase(self, number: int, fared: Sequence[Fared]) -> Phase:
        of = [each for each in fared if self._in(number, each.arrival_s)]
        settled = [each for each in of if each.arrival_s >= number * self._phase_s + SETTLE_S]
        return Phase(PHASES[number], of, settled)

    def _set(self, ratio: Split, pinned: bool) -> None:
        """By hand; whoever prefills already goes on with it."""
        views = sorted(self._roles.views(), key=lambda view: (view.role != "prefill", view.replica_id))
        assert len(views) == WORKERS, f"{len(views)} workers answer"
        for number, view in enumerate(views):
            self._roles.lend(view.replica_id, "prefill" if number < ratio.prefill else "decode", pinned, BY_HAND)

    def _changes(self, began_s: float) -> list[Change]:
        made = {
            Change(round(change.at_s - began_s, 1), change.why)
            for view in self._roles.views()
            for change in view.role_history
            if change.at_s >= began_s and change.why != BY_HAND
        }
        return sorted(made, key=lambda change: change.at_s)


@contextmanager
def deployment(folder: Path) -> Iterator[Driver]:
    """Eight workers that may be lent; a turn finds few replicas, and waits."""
    pools = {"prefill": 4, "decode": 4}
    changes = {f"{pool}.engine.{key}": value for pool in pools for key, value in ENGINE.items()}
    changes |= {f"{pool}.replicas": replicas for pool, replicas in pools.items()}
    changes |= {"router.itl_target_s": SLO.itl_s, "pools.ttft_target_s": SLO.ttft_s}
    changes |= {"gateway.admission.max_wait_s": 60}
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    with Driver(folder / "pools.log", "configs/simulated.yaml", *sets) as driver:
        driver.await_up(300)
        yield driver
        driver.end(signal.SIGINT)


def join(driver: Driver) -> "FarRoles":
    """Its workers, for lending them by hand."""
    Ticket(**json.loads((run_folder(driver.mark) / FILE).read_text())).join()
    from cluster.cli.far_workers import FarRoles  # which imports ray, and ray reads its token when it is imported

    return FarRoles()


def workers(driver: Driver) -> set[int]:
    """Their process ids."""
    return {*driver.pids("prefill"), *driver.pids("decode")}


def report(bench: Bench, fixed: Sequence[tuple[Split, Phase]], runs: Sequence[Lent], phase_s: float) -> Iterator[str]:
    """Lines of figures."""
    best = {kind: max(phase.good for _, phase in fixed if phase.kind is kind) for kind in FIXED}
    for ratio, phase in fixed:
        yield f"  fixed {ratio}  {phase}"
    found = []
    for run in runs:
        yield f"  lending from {run.start}"
        for phase in run.phases:
            found.append(phase.good / best[phase.kind])
            yield f"    {phase}: {found[-1]:.3f} of the best fixed ratio"
        for change in run.changes:
            late = ", at steady load" if bench.steady(change) else ""
            yield f"    {change.at_s:6.1f} s: {change.why}{late}"
    yield f"  of the best fixed ratio, n {len(found)}: {spread(found)} (goal: at least {GOAL})"
    minutes = len(runs) * len(PHASES) * (phase_s - SETTLE_S) / 60
    steady = sum(bench.steady(change) for run in runs for change in run.changes)
    yield f"  changes in {minutes:.1f} minutes of steady load: {steady} (goal: at most {CHANGES_A_MINUTE:g} a minute)"
    fared = [each for _, phase in fixed for each in phase.all]
    fared += [each for run in runs for phase in run.phases for each in phase.all]
    failed = [each.complaint for each in fared if each.complaint]
    yield f"  failed requests: {len(failed)} of {len(fared)}{''.join(f'; {text}' for text in failed[:3])}"
    yield f"  requests were sent {1000 * percentile([each.late_s for each in fared], 0.99):.0f} ms late at p99"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", type=float, default=30.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="20 seconds a phase, two fixed ratios for each kind")
    options = parser.parse_args()
    phase_s, ratios = (20.0, 2) if options.quick else (options.phase, 3)
    with tempfile.TemporaryDirectory() as folder, deployment(Path(folder)) as driver:
        bench, before = Bench(driver.url, join(driver), phase_s, options.seed), workers(driver)
        fixed = [(ratio, bench.fixed(kind, ratio)) for kind, all_ in FIXED.items() for ratio in all_[:ratios]]
        runs = [bench.lending(start) for start in STARTS]
        restarted = before - workers(driver)
    print(describe())
    about = ", ".join(f"{k.name} ({k.prompt_tokens} + {k.output_tokens} tokens, {k.per_s:g}/s)" for k in FIXED)
    print(f"{WORKERS} simulated workers; {about}; {phase_s:g} s a phase")
    print(f"good: TTFT at most {SLO.ttft_s:g} s and mean ITL at most {1000 * SLO.itl_s:g} ms; from {SETTLE_S:g} s on")
    print("\n".join(report(bench, fixed, runs, phase_s)))
    print(f"  workers restarted: {len(restarted)}")


if __name__ == "__main__":
    main()
