"""All points of an engine, round by round until a deadline, and the profile that follows from their medians.

Rounds, not points, are repeated: what disturbs the machine for a while falls on different points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from cluster.profiling.bench import Bench
from cluster.profiling.fit import EngineShape, Fit, Point, fit
from cluster.profiling.rig import CannotProfile
from cluster.profiling.schedule import Limits, schedule
from configs.measured import DecodePoint, LoadPoint, MeasuredConfig, PrefillPoint, TransferPoint

P = TypeVar("P", bound=Point)


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` is the share of the work; `left_s` a guess from how long that took, None at the start."""

    text: str
    done: int
    total: int
    left_s: float | None


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often each point is measured, and when it has to be done."""

    rounds: int
    quick: bool
    deadline_s: float


async def measure(bench: Bench, limits: Limits, pace: Pace, report: Report) -> MeasuredConfig:
    """Whole rounds, as many as the deadline allows. Raises `CannotProfile` when not even one is done by then."""
    tasks = schedule(limits, pace.quick)
    began_s, total = bench.clock(), pace.rounds * sum(task.work_tokens for task in tasks)
    rounds: list[list[Point]] = []
    done, longest_s = 0, 0.0
    while len(rounds) < pace.rounds and bench.clock() - began_s + longest_s <= pace.deadline_s:
        round_began_s, points = bench.clock(), list[Point]()
        for task in tasks:
            spent_s = bench.clock() - began_s
            if spent_s > pace.deadline_s:
                break
            left_s = spent_s / done * (total - done) if done else None
            report(Progress(f"round {len(rounds) + 1} of {pace.rounds}: {task}", done, total, left_s))
            points += await bench.measure(task)
            done += task.work_tokens
        else:
            rounds.append(points)
            longest_s = max(longest_s, bench.clock() - round_began_s)
            continue
        break
    if not rounds:
        raise CannotProfile(
            f"--minutes: {pace.deadline_s / 60:g} are too few: {done / total * pace.rounds:.0%} of the first round "
            "were done; give more, or --quick"
        )
    return medians(rounds)


def medians(rounds: Sequence[Sequence[Point]]) -> MeasuredConfig:
    """The same points of all rounds, each with the median of its times."""
    return MeasuredConfig(
        rounds=len(rounds),
        prefill=_medians(PrefillPoint, rounds),
        decode=_medians(DecodePoint, rounds),
        load=_medians(LoadPoint, rounds),
        transfer=_medians(TransferPoint, rounds),
    )


def _medians(kind: type[P], rounds: Sequence[Sequence[Point]]) -> tuple[P, ...]:
    """Rounds have their points in the same order. The context of decode points differs by tokens: the first counts."""
    columns = zip(*([point for point in points if isinstance(point, kind)] for points in rounds), strict=True)
    return tuple(
        column[0].model_copy(update={"seconds": median(point.seconds for point in column)}) for column in columns
    )


def fitted(measured: MeasuredConfig, limits: Limits, kv_bytes_per_token: int) -> Fit:
    """The rates of such an engine."""
    return fit(measured, EngineShape(limits.chunk_tokens, limits.max_running, kv_bytes_per_token))
