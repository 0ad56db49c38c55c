"""Clears what dead runs left: processes that carry their mark, shared memory only these had, and folders.

A run is dead when its driver is. Nothing of a live run is touched, and nothing without a mark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.runtime.folders import existing_runs, remove_run_folder
from cluster.runtime.mark import RunMark
from cluster.runtime.processes import GRACE_S, MarkedProcess, end, marked_processes
from cluster.runtime.shared_memory import mapped_by, remove_unused

ROUNDS = 5
"""A process that is ending can still start others: look again until there are none."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What was cleared: process ids, and the marks of the runs whose folders were removed."""

    pids: tuple[int, ...]
    folders: tuple[RunMark, ...]


def reclaim() -> Reclaimed:
    """Clear every dead run. Takes up to some seconds where processes are left, else milliseconds."""
    pids = _end_all(lambda process: not process.mark.is_alive(), GRACE_S)
    dead = [mark for mark in existing_runs() if not mark.is_alive()]
    return Reclaimed(pids, tuple(mark for mark in dead if remove_run_folder(mark)))


def clear_run(mark: RunMark, grace_s: float = GRACE_S) -> Reclaimed:
    """Clear one run, its driver excepted, whether or not that is alive."""
    pids = _end_all(lambda process: process.mark == mark and process.pid != mark.pid, grace_s)
    return Reclaimed(pids, (mark,) if remove_run_folder(mark) else ())


def _end_all(belongs: Callable[[MarkedProcess], bool], grace_s: float) -> tuple[int, ...]:
    ended: list[int] = []
    shared: set[Path] = set()
    for _ in range(ROUNDS):
        found = [process for process in marked_processes() if belongs(process)]
        if not found:
            break
        pids = [process.pid for process in found]
        shared |= mapped_by(pids)
        end(found, grace_s)
        ended += pids
    remove_unused(shared)
    return tuple(dict.fromkeys(ended))
