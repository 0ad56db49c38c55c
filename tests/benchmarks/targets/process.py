"""A target as the benchmark sees it: a process that says when it is up, what it costs, and that it can be ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

import psutil

from tests.benchmarks.targets.announce import MARK

ROOT = Path(__file__).parents[3]
STOP_DEADLINE_S = 30.0
LAST_LINES = 25


class DidNotStart(RuntimeError):
    """A target process ended or stayed silent; the message has its last lines."""


@dataclass(frozen=True, slots=True)
class Up:
    """What a target announced: its name and port, and the processes that do the gateway's work."""

    name: str
    port: int
    pids: tuple[int, ...]
    extra: dict[str, object]


class TargetProcess:
    """Started in a session of its own; `stop` ends that whole session."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._log = log
        self._lines: Queue[str] = Queue()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def wait_until_up(self, timeout_s: float) -> Up:
        """The next target this process announces. Raises DidNotStart."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise DidNotStart(f"silent for {timeout_s:.0f} s\n{self._tail()}") from None
            if not line:
                raise DidNotStart(f"ended\n{self._tail()}")
            if line.startswith(MARK):
                facts = json.loads(line.removeprefix(MARK))
                return Up(facts.pop("name"), facts.pop("port", 0), tuple(facts.pop("pids")), facts)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def stop(self) -> None:
        """End the target and everything in its session."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_DEADLINE_S)
        self._signal(signal.SIGKILL)
        self._process.wait(STOP_DEADLINE_S)

    def _signal(self, number: signal.Signals) -> None:
        """To the leader first, so that it can end its children in order; a kill goes to the whole session."""
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


def cpu_s(pids: tuple[int, ...]) -> float:
    """Seconds of CPU these processes have used."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(t.user + t.system for t in times)
