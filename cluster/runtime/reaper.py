"""Ends a run when its driver ends, however that ends.

A detached process holds the reading end of a pipe whose writing end only the driver has. At end-of-file it ends every
process with the run's mark, removes the run's folder, and exits. A driver that ends in order waits for that.

Standard library only: the process stays small (`python -S -m cluster.runtime.reaper FD PID:TICKS`).
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster.runtime.mark import RunMark, parse
from cluster.runtime.reclaim import clear_run

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
    while os.read(read_end, 1):
        pass
    clear_run(mark)


if __name__ == "__main__":
    marked = parse(sys.argv[2])
    if marked is None:
        sys.exit(f"not a run: {sys.argv[2]}")
    main(int(sys.argv[1]), marked)
