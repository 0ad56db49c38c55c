"""Finds and ends the processes of a run, by their mark and nothing else. Runs of another folder are never found.

A process is signalled through a pidfd that was opened before its identity was read, so the signal cannot reach a later
process with the same number. The caller and its ancestors are never among those found.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.runtime.mark import FOLDER_VARIABLE, VARIABLE, RunMark, parse, start_ticks

GRACE_S = 2.0
KILL_S = 5.0
LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A live process of this user that carries a mark."""

    pid: int
    start_ticks: int
    mark: RunMark


def marked_processes() -> list[MarkedProcess]:
    """All of them, whatever their run."""
    spared = set(_self_and_ancestors())
    found = (_inspect(int(name)) for name in os.listdir("/proc") if name.isdigit() and int(name) not in spared)
    return [process for process in found if process]


def end(processes: Sequence[MarkedProcess], grace_s: float = GRACE_S) -> None:
    """SIGTERM, then SIGKILL for those still there after `grace_s`; returns when they are gone or `KILL_S` later."""
    _signal_all(processes, signal.SIGTERM)
    left = _wait(processes, grace_s)
    _signal_all(left, signal.SIGKILL)
    _wait(left, KILL_S)


def _inspect(pid: int) -> MarkedProcess | None:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return None
        text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return None
    variables = dict(one.partition("=")[::2] for one in text.split("\0"))
    if variables.get(FOLDER_VARIABLE) != os.environ.get(FOLDER_VARIABLE):
        return None
    mark, started = parse(variables.get(VARIABLE, "")), start_ticks(pid)
    return MarkedProcess(pid, started, mark) if mark and started is not None else None


def _self_and_ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def _signal_all(processes: Sequence[MarkedProcess], number: signal.Signals) -> None:
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            if start_ticks(process.pid) == process.start_ticks:
                signal.pidfd_send_signal(handle, number)
        except OSError:
            continue
        finally:
            os.close(handle)


def _wait(processes: Sequence[MarkedProcess], timeout_s: float) -> list[MarkedProcess]:
    """Those still there when the time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = [one for one in processes if start_ticks(one.pid) == one.start_ticks]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(LOOK_EVERY_S)
