"""Ends a run when its driver ends, however that ends.

A detached process holds the reading end of a pipe whose writing end only the driver has. At end-of-file it ends every
process with the run's mark, removes the run's folder, and exits. A driver that ends in order waits for that.

Until then it notes which shared memory the run's processes map: an engine that dies before the driver leaves a file
that nobody maps any more, and that nothing could be told to belong to the run.

Standard library only: the process stays small (`python -S -m cluster.runtime.reaper FD PID:TICKS`).
"""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from cluster.runtime.mark import RunMark, parse
from cluster.runtime.processes import marked_processes
from cluster.runtime.reclaim import clear_run
from cluster.runtime.shared_memory import mapped_by, remove_unused

LOOK_EVERY_S = 5.0
CLOSE_DEADLINE_S = 30.0
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Blocked before the process exists and inherited, so that no moment is left in which one of them ends it."""


class Reaper:
    """The driver's end. Invariant: while this is open, the reaper waits."""

    def __init__(self, mark: RunMark) -> None:
        self._mark = mark
        read_end, self._write_end = os.pipe()
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-m", "cluster.runtime.reaper", str(read_end), str(mark)],
                pass_fds=[read_end],
                start_new_session=True,
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(read_end)

    @property
    def pid(self) -> int:
        """The reaper's process."""
        return self._process.pid

    def close(self) -> None:
        """Let it do its work and wait until it is done; if it was killed, do the work here.

        Raises `subprocess.TimeoutExpired` after its deadline.
        """
        os.close(self._write_end)
        if self._process.wait(CLOSE_DEADLINE_S) != 0:
            clear_run(self._mark)


def main(read_end: int, mark: RunMark) -> None:
    """Wait for the driver's end, then clear its run."""
    shared: set[Path] = set()
    while not select.select([read_end], [], [], LOOK_EVERY_S)[0]:
        shared = {path for path in shared if path.exists()} | _shared_memory(mark)
    shared |= _shared_memory(mark)
    clear_run(mark)
    remove_unused(shared)


def _shared_memory(mark: RunMark) -> set[Path]:
    return mapped_by(process.pid for process in marked_processes() if process.mark == mark)


if __name__ == "__main__":
    marked = parse(sys.argv[2])
    if marked is None:
        sys.exit(f"not a run: {sys.argv[2]}")
    main(int(sys.argv[1]), marked)
