"""NVIDIA Dynamo's frontend with its mock workers, prefill and decode apart and KV-aware routing, from `.peers/dynamo`.

Discovery through files, so that neither etcd nor NATS runs. The mock workers' modelled time is cut to a
thousandth. The process that is measured is the frontend; it is Rust and uses several threads.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.targets.announce import announce

PYTHON = Path(__file__).parents[3] / ".peers" / "dynamo" / "bin" / "python"
MODEL_NAME = "m"
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 10.0


def installed() -> bool:
    """Whether `make bench-peers` has been here."""
    return (PYTHON.parents[1] / ".ready").exists()


def mocker_arguments(role: str, model: str, step_s: float) -> list[str]:
    """One mock worker. Without pacing its modelled time passes 1,000 times as fast: faster than with no delays (0)."""
    return [
        *("dynamo.mocker", "--model-path", model, "--model-name", MODEL_NAME, "--disaggregation-mode", role),
        *("--discovery-backend", "file", "--block-size", "16", "--max-num-seqs", "256"),
        *("--num-gpu-blocks-override", "65536"),
        *("--speedup-ratio", "1" if step_s else "1000"),
    ]


def frontend_arguments(port: int) -> list[str]:
    """The frontend: HTTP, tokeniser, KV router."""
    return [
        *("dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)),
        *("--discovery-backend", "file", "--router-mode", "kv"),
    ]


@contextlib.contextmanager
def processes(commands: list[list[str]], store: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Dynamo's processes, ended together."""
    environment = {
        **os.environ,
        "DYN_FILE_KV": store,
        "DYN_LOG": "error",
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": "",
    }
    with contextlib.ExitStack() as stack:
        started = []
        for command in commands:
            process = subprocess.Popen([str(PYTHON), "-m", *command], env=environment, stdout=sys.stderr)
            stack.callback(end, process)
            started.append(process)
        yield started


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then make it."""
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_DEADLINE_S)


def wait_until_it_answers(port: int) -> None:
    """Return after a completion was answered with 200, which needs both workers to be known."""
    body = json.dumps({"model": MODEL_NAME, "prompt": "hello", "max_tokens": 2}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Dynamo did not answer within {START_DEADLINE_S:.0f} s: {error}") from error
            time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    commands = [mocker_arguments(role, options.model, options.step_s) for role in ("prefill", "decode")]
    commands.append(frontend_arguments(options.port))
    with tempfile.TemporaryDirectory(prefix="dynamo-") as store, processes(commands, store) as started:
        wait_until_it_answers(options.port)
        announce("dynamo", port=options.port, pids=[started[-1].pid])
        signal.pause()


if __name__ == "__main__":
    main()
