"""A `baton serve` in a process of its own, and everything of it that the system can see: for tests that kill parts."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from cluster.runtime.folders import run_folder
from cluster.runtime.mark import VARIABLE, RunMark, start_ticks
from cluster.runtime.processes import marked_processes
from cluster.runtime.reclaim import clear_run
from tests.support.serving import CONFIGS, free_port

KINDS = {
    "gcs_server": "/gcs_server ",
    "raylet": "/raylet ",
    "controller": "ray::ServeController",
    "haproxy": "/haproxy -dS -db",
    "haproxy_manager": "ray::HAProxyManager",
    "proxy_actor": "ray::ProxyActor",
    "gateway": "ray::ServeReplica:baton:Gateway",
    "prefill": "ray::ServeReplica:baton:PrefillWorker",
    "decode": "ray::ServeReplica:baton:DecodeWorker",
    "store": "ray::NodeStore",
    "engine_core": "VLLM::EngineCore",
    "engine_worker": "VLLM::Worker",
}
"""What the command line of each kind of process holds."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What of a run exists outside its processes' memory."""

    pids: frozenset[int] = frozenset()
    ports: frozenset[int] = frozenset()
    sockets: frozenset[str] = frozenset()
    files: frozenset[Path] = frozenset()


class Driver:
    """Owns the process. Use as a context: at the end of the block nothing of it is left, whatever happened."""

    def __init__(self, log: Path, *args: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._shared_before = set(Path("/dev/shm").iterdir())
        command = [sys.executable, "-m", "cluster.cli.main", "serve", *args, "--port", str(self.port)]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=CONFIGS.parent
            )
        self.mark = RunMark(self.process.pid, start_ticks(self.process.pid) or 0)

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        clear_run(self.mark)

    @property
    def output(self) -> str:
        """All it has printed."""
        return self._log.read_text()

    def await_said(self, text: str, deadline_s: float = 90.0) -> None:
        """Return when its output holds a text; fails when it ends before."""
        eventually(lambda: text in self.output or self.process.poll() is not None, deadline_s)
        assert text in self.output, self.output

    def await_up(self, deadline_s: float = 90.0) -> None:
        """Return when it says that it serves."""
        self.await_said("Baton serves", deadline_s)

    def end(self, number: signal.Signals, deadline_s: float = 40.0) -> int:
        """Send a signal to the driver alone and wait for its end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(deadline_s)

    # Its parts

    def pids(self, kind: str) -> list[int]:
        """Its processes of a kind."""
        return [pid for pid in self._marked() if KINDS[kind] in _command_line(pid)]

    def reaper(self) -> psutil.Process:
        """The process that outlives the driver; it does not carry the run's mark."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if "cluster.runtime.reaper" in child.cmdline())

    def kill(self, kind: str) -> int:
        """SIGKILL its first process of a kind, wait until that is gone, and return its pid.

        One that is just being replaced is waited for.
        """
        eventually(lambda: bool(self.pids(kind)), 30.0)
        pid = self.pids(kind)[0]
        began = start_ticks(pid)
        psutil.Process(pid).kill()
        eventually(lambda: start_ticks(pid) != began, 5.0)
        return pid

    def replace_controller(self, deadline_s: float = 30.0) -> None:
        """Kill Serve's controller and return when the new one says that it has recovered the deployments."""
        killed = self.kill("controller")
        logs = run_folder(self.mark) / "r" / "session_latest" / "logs" / "serve"

        def recovered() -> bool:
            found = [path for path in logs.glob("controller_*.log") if path.stem != f"controller_{killed}"]
            return bool(found) and "Finished recovering" in max(found, key=lambda p: p.stat().st_mtime).read_text()

        eventually(recovered, deadline_s)

    def footprint(self) -> Footprint:
        """Everything of the run that exists now."""
        pids = frozenset(self._marked())
        held = [c for c in psutil.net_connections("inet") if c.pid in pids and c.status == psutil.CONN_LISTEN]
        folder = run_folder(self.mark)
        shared = set(Path("/dev/shm").iterdir()) - self._shared_before
        mapped = {path for path in shared if any(str(path) in _maps(pid) for pid in pids)}
        return Footprint(
            pids=pids,
            ports=frozenset(c.laddr.port for c in held if c.laddr),
            sockets=frozenset(str(c.laddr) for c in psutil.net_connections("unix") if c.pid in pids and c.laddr),
            files=frozenset(mapped | ({folder} if folder.exists() else set())),
        )

    def _marked(self) -> list[int]:
        return [process.pid for process in marked_processes() if process.mark == self.mark]

    # Asking it

    def ask(self, timeout_s: float = 5.0, tokens: int = 4) -> int | str:
        """One completion; its status, or the name of what went wrong on the way."""
        try:
            body = {"model": "tiny", "prompt": [7, 8, 9], "max_tokens": tokens}
            return httpx.post(f"{self.url}/v1/completions", json=body, timeout=timeout_s).status_code
        except httpx.HTTPError as error:
            return type(error).__name__

    def stream(self, tokens: int, silence_s: float = 60.0) -> Iterator[str]:
        """The pieces of one streamed completion, greedy and as long as that; fails on anything else in the stream."""
        body = {"model": "tiny", "prompt": [7, 8, 9], "max_tokens": tokens, "ignore_eos": True, "stream": True}
        body |= {"temperature": 0}
        with httpx.stream("POST", f"{self.url}/v1/completions", json=body, timeout=silence_s) as answer:
            for line in filter(None, answer.iter_lines()):
                data = line.removeprefix("data: ")
                if data == "[DONE]":
                    return
                event = json.loads(data)
                assert "choices" in event, event
                yield event["choices"][0]["text"]
        raise AssertionError("the stream ended before the answer did")

    def answers_within(self, deadline_s: float) -> float:
        """Seconds until it answers a completion; fails after `deadline_s`."""
        began = time.monotonic()
        eventually(lambda: self.ask() == 200, deadline_s)
        return time.monotonic() - began


def left_of(seen: Footprint, newer: Footprint | None = None) -> Footprint:
    """What of an earlier footprint still exists. A newer run may use the same ports again."""
    listening = {c.laddr.port for c in psutil.net_connections("inet") if c.laddr and c.status == psutil.CONN_LISTEN}
    return Footprint(
        pids=frozenset(pid for pid in seen.pids if f"{VARIABLE}=" in _read(pid, "environ")),
        ports=(seen.ports & listening) - (newer.ports if newer else frozenset()),
        sockets=seen.sockets & {str(c.laddr) for c in psutil.net_connections("unix") if c.laddr},
        files=frozenset(path for path in seen.files if path.exists()),
    )


def eventually(holds: Callable[[], bool], deadline_s: float) -> None:
    """Return when the condition holds; fail after `deadline_s`."""
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, f"not within {deadline_s:g} s"
        time.sleep(0.1)


def _command_line(pid: int) -> str:
    return _read(pid, "cmdline").replace("\0", " ")


def _maps(pid: int) -> str:
    return _read(pid, "maps")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
