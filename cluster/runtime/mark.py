"""The name of a run: its driver's process id and start time, which no later process can share.

Every process of a run carries it in its environment as `BATON_RUN`, inherited from the driver. Linux only: reads
`/proc`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "BATON_RUN"
FOLDER_VARIABLE = "BATON_RUNS"
"""Names another folder for runs than the usual one: runs of different folders do not know each other."""


@dataclass(frozen=True, slots=True)
class RunMark:
    """A driver. `start_ticks` is its start since boot, in clock ticks (field 22 of `/proc/<pid>/stat`)."""

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}"

    def is_alive(self) -> bool:
        """Whether that very process still runs; a zombie does not."""
        return start_ticks(self.pid) == self.start_ticks


def current() -> RunMark:
    """The mark of a run whose driver is this process."""
    return RunMark(os.getpid(), start_ticks(os.getpid()) or 0)


def parse(text: str) -> RunMark | None:
    """`pid:ticks` as a mark; None for anything else."""
    pid, _, ticks = text.partition(":")
    return RunMark(int(pid), int(ticks)) if pid.isdigit() and ticks.isdigit() else None


def start_ticks(pid: int) -> int | None:
    """When a process started; None where it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])
