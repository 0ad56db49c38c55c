"""One `baton serve` from start to end: up, watched, down.

Invariant: from `Reaper` on, this process may end in any way and nothing of the run stays.
"""

import contextlib
import functools
import io
import json
import os
import shutil
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from cluster.cli.board import Board, Lines, board
from cluster.cli.replicas import ApplicationView, last_line, view
from cluster.runtime.folders import make_run_folder, runs_folder
from cluster.runtime.instance import Instance, InstanceLost, InstanceUnreachable, deploy, details
from cluster.runtime.mark import RunMark
from cluster.runtime.reaper import Reaper
from cluster.runtime.record import write_record
from cluster.runtime.signals import StopRequested, StopSignals
from configs.load import Deployment

LOOK_EVERY_S = 0.5
WATCH_EVERY_S = 2.0
HEALTH_TIMEOUT_S = 5.0
END_DEADLINE_S = 30.0
FAILED_END_DEADLINE_S = 3.0  # nothing answers yet, or any more, so nothing has to end in order
UNREACHABLE_S = 60.0


class StartFailed(Exception):
    """The application did not come up. Its text is the failing replica's own error."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run where."""

    mark: RunMark
    deployment: Deployment
    instance: Instance

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        http = self.deployment.http
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(http.host, http.host)
        return f"http://{host}:{http.port}"


def run(plan: Plan) -> int:
    """Serve until told to stop; the exit code."""
    signals = StopSignals()
    signals.install()
    make_run_folder(plan.mark)
    reaper = Reaper(plan.mark)
    up = False
    code = 1
    try:
        seen = _start(plan, signals)
        up = True
        _watch(plan, seen)
    except StopRequested as stop:
        code = 0 if up else stop.exit_code
    except Exception as failure:
        up = up and not isinstance(failure, InstanceLost)
        _say_failure(str(failure))
        _keep_logs(plan.mark)
    return _end(plan, reaper, code, END_DEADLINE_S if up else FAILED_END_DEADLINE_S)


def _start(plan: Plan, signals: StopSignals) -> ApplicationView:
    began_s = time.monotonic()
    print("Ray: starting", flush=True)
    plan.instance.start(plan.deployment)
    signals.install()
    print(f"Ray: ready {time.monotonic() - began_s:.0f} s", flush=True)
    deploy(plan.deployment)
    with board() as shown:
        seen = _await(plan, shown, lambda now: now.phase == "running" and _healthy(plan.url))
    print(
        f"\nBaton serves {plan.deployment.model_name} at {plan.url} (up in {time.monotonic() - began_s:.0f} s). Try:\n"
    )
    body = {"model": plan.deployment.model_name, "messages": [{"role": "user", "content": "Hello!"}]}
    print(f"  curl {plan.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{json.dumps(body)}'\n")
    print("Ctrl-C stops it.", flush=True)
    return seen


def _await(plan: Plan, shown: Board, done: Callable[[ApplicationView], bool]) -> ApplicationView:
    deadline_s = time.monotonic() + plan.deployment.config.timeouts.start_s
    while time.monotonic() < deadline_s:
        seen = _look(plan, shown)
        if seen.phase == "failed":
            raise StartFailed(seen.error)
        if done(seen):
            return seen
        time.sleep(LOOK_EVERY_S)
    raise StartFailed(f"not up within timeouts.start_s = {plan.deployment.config.timeouts.start_s:.0f} s")


def _watch(plan: Plan, seen: ApplicationView) -> None:
    """Say what changes until a signal comes. Serve brings lost replicas back by itself, and its controller too."""
    shown = Lines(seen.replicas)
    silent_since_s: float | None = None
    while True:
        try:
            _look(plan, shown)
            silent_since_s = None
        except InstanceUnreachable:
            silent_since_s = silent_since_s or time.monotonic()
            if time.monotonic() - silent_since_s > UNREACHABLE_S:
                raise
        time.sleep(WATCH_EVERY_S)


def _look(plan: Plan, shown: Board) -> ApplicationView:
    plan.instance.check()
    seen = view(details(), plan.deployment.name)
    shown.show(seen)
    write_record(
        plan.mark, {"url": plan.url, "model": plan.deployment.model_name, "written_s": time.time(), **seen.to_dict()}
    )
    return seen


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=HEALTH_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _end(plan: Plan, reaper: Reaper, code: int, deadline_s: float) -> int:
    """Everything down; the exit code. A second signal skips the rest, the reaper does it then.

    Past the deadline the process exits at once: Ray would end it, with a code of its own, as soon as the reaper ends
    Ray.
    """
    began_s = time.monotonic()
    say = functools.partial(print, file=sys.stdout, flush=True)  # `_quietly` redirects what is looked up later
    say("\nstopping; Ctrl-C again forces it")
    ending = threading.Thread(target=_quietly, args=(plan,), daemon=True)
    ending.start()
    while ending.is_alive() and time.monotonic() - began_s < deadline_s:
        ending.join(min(5.0, deadline_s))
        if ending.is_alive():
            say(f"stopping: {time.monotonic() - began_s:.0f} s")
    if ending.is_alive():
        say("stopped by force")
        os._exit(code)
    reaper.close()
    say(f"stopped in {time.monotonic() - began_s:.0f} s")
    return code


def _quietly(plan: Plan) -> None:
    """An instance that is half started or gone cannot end in order; the reaper does the rest.

    Ray prints that Serve's controller ended when it was told to; nobody needs to read that.
    """
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        plan.instance.end(plan.deployment)


def _say_failure(text: str) -> None:
    """The exception itself first; all of the text where there is more."""
    short = last_line(text)
    print(f"\nFailed: {short}", *([] if text.strip() == short else [f"\n{text}"]), sep="\n", file=sys.stderr)


def _keep_logs(mark: RunMark) -> None:
    """Ray's logs of a failed start, beside the run folders, until the next failed start."""
    kept = runs_folder() / "failed-start-logs"
    shutil.rmtree(kept, ignore_errors=True)
    with contextlib.suppress(OSError, shutil.Error):
        shutil.copytree(make_run_folder(mark) / "r" / "session_latest" / "logs", kept)
        print(f"All logs: {kept}", file=sys.stderr)
