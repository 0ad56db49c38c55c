"""Shows how far commands are that take long: bars with elapsed time on a terminal, a line for each step elsewhere.

Everything goes to standard error, so that a command's result can be piped.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.models.progress import Progress, Report

if TYPE_CHECKING:
    from cluster.cli.out_of_service import WorkerView
    from cluster.profiling.session import Progress as Round


@contextmanager
def shown(title: str) -> Iterator[Report]:
    """A report function whose progress is on screen until the block ends."""
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None)

        def report(progress: Progress) -> None:
            text = f"{title}: {progress.step}"
            bars.update(task, description=text, completed=progress.done_bytes, total=progress.total_bytes)

        yield report


@contextmanager
def slots_shown() -> Iterator[Callable[[str, int, int], None]]:
    """A report function (a store's address, slots done, slots in all) whose progress is on screen until the block
    ends.
    """
    if not sys.stderr.isatty():
        yield _store_began
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(address: str, done: int, total: int) -> None:
            if address not in tasks:
                tasks[address] = bars.add_task(address)
            bars.update(tasks[address], completed=done, total=total)

        yield report


@dataclass(frozen=True, slots=True)
class Trials:
    """`says` names what is being looked for, `tried` counts."""

    says: Callable[[str], None]
    tried: Callable[[object], None]


@contextmanager
def trials_shown(title: str) -> Iterator[Trials]:
    """How many trials there were and what the last one said, until the block ends; nobody knows how many will be."""
    if not sys.stderr.isatty():
        yield Trials(lambda text: print(f"{title}: {text}", file=sys.stderr, flush=True), lambda trial: None)
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:.0f} trials, {task.description}"), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title)
        yield Trials(lambda text: bars.update(task, description=f"{title}: {text}"), lambda trial: bars.advance(task))


@dataclass(frozen=True, slots=True)
class Rounds:
    """`says` what goes on before it can be told how far it is, `at` how far it is."""

    says: Callable[[str], None]
    at: Callable[["Round"], None]


@contextmanager
def rounds_shown(title: str) -> Iterator[Rounds]:
    """What is measured and how long is left, until the block ends."""
    if not sys.stderr.isatty():

        def say(text: str) -> None:
            print(f"{title}: {text}", file=sys.stderr, flush=True)

        yield Rounds(say, lambda now: say(f"{now.text}{_left(now.left_s)}"))
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None)

        def at(now: "Round") -> None:
            text = f"{title}: {now.text}{_left(now.left_s)}"
            bars.update(task, description=text, completed=now.done, total=now.total)

        yield Rounds(lambda text: bars.update(task, description=f"{title}: {text}"), at)


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f", about {left_s // 60:.0f}:{left_s % 60:02.0f} left"


class _Lines:
    """One line when a step begins."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._step = ""
        self._start_s = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if progress.step != self._step:
            self._step = progress.step
            print(
                f"{self._title}: {progress.step} ({time.monotonic() - self._start_s:.1f} s)",
                file=sys.stderr,
                flush=True,
            )


def _store_began(address: str, done: int, total: int) -> None:
    if not done:
        print(f"verifying {address}: {total} slots", file=sys.stderr, flush=True)


@contextmanager
def streams_shown() -> Iterator[Callable[["WorkerView"], None]]:
    """A report function whose count of a worker's live streams is on screen until the block ends."""
    if not sys.stderr.isatty():
        yield _Streams()
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("streams")
        most = 0

        def report(worker: "WorkerView") -> None:
            nonlocal most
            most = max(most, worker.live_legs)
            text = f"{worker.replica_id}: {worker.live_legs} streams left"
            bars.update(task, description=text, completed=most - worker.live_legs, total=most or 1)

        yield report


class _Streams:
    """One line whenever the number changes."""

    def __init__(self) -> None:
        self._left: int | None = None

    def __call__(self, worker: "WorkerView") -> None:
        if worker.live_legs != self._left:
            self._left = worker.live_legs
            print(f"{worker.replica_id}: {self._left} streams left", file=sys.stderr, flush=True)
