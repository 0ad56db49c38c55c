"""The processes of a running service, by what they are: found by the run's mark, so never another run's."""

import os
import random
import signal
import time
from dataclasses import dataclass

from cluster.runtime.mark import RunMark, start_ticks
from cluster.runtime.processes import marked_processes
from tests.support.driver import KINDS


@dataclass(frozen=True, slots=True)
class Part:
    """One process. `began` tells it from a later one with the same number."""

    kind: str
    pid: int
    began: int

    def __str__(self) -> str:
        return f"{self.kind} {self.pid}"

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return start_ticks(self.pid) == self.began

    def signal(self, number: int) -> None:
        """Send it a signal. Raises `ProcessLookupError` when it is gone."""
        handle = os.pidfd_open(self.pid)
        try:
            if not self.alive:
                raise ProcessLookupError(f"{self} is gone")
            signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)

    def await_gone(self, deadline_s: float = 5.0) -> None:
        """Return when it is gone; fails after `deadline_s`."""
        end = time.monotonic() + deadline_s
        while self.alive:
            assert time.monotonic() < end, f"{self} is not gone within {deadline_s:g} s"
            time.sleep(0.01)


class Parts:
    """All parts of the run with this mark, looked up anew with every question."""

    def __init__(self, mark: RunMark) -> None:
        self._mark = mark

    def of(self, *kinds: str) -> list[Part]:
        """Those of these kinds (see `KINDS`), oldest first."""
        found = [part for part in self._all() if part.kind in kinds]
        return sorted(found, key=lambda part: (part.began, part.pid))

    def any(self, kind: str, rng: random.Random) -> Part | None:
        """One of a kind; None when none is there now."""
        there = self.of(kind)
        return rng.choice(there) if there else None

    def _all(self) -> list[Part]:
        mine = [process for process in marked_processes() if process.mark == self._mark]
        named = [(_kind(process.pid), process) for process in mine]
        return [Part(kind, process.pid, process.start_ticks) for kind, process in named if kind is not None]


def _kind(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            line = file.read().replace("\0", " ")
    except OSError:
        return None
    return next((kind for kind, text in KINDS.items() if text in line), None)
