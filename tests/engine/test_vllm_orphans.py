"""No process, shared memory or socket file of an engine outlives its owner, however that ends, even if stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),  # what the engines of other tests in this process left to be collected
    pytest.mark.timeout(300),
]

GONE_S = 8.0


@pytest.mark.parametrize("ending", ["killed", "closed"])
def test_an_owner_takes_everything_of_its_engine_along_and_needs_no_store(ending: str, tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.owner", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert owner.stdout is not None
        assert owner.stdin is not None
        assert any(line.strip() == "ready" for line in owner.stdout)
        children = psutil.Process(owner.pid).children(recursive=True)
        assert len(children) >= 2
        shared = {path for child in children for path in shared_memory(child.pid)}
        if ending == "killed":
            for child in children:
                if child.name().startswith("VLLM::"):
                    child.suspend()
            owner.send_signal(signal.SIGKILL)
        owner.stdin.close()
        owner.wait(30.0)
        _, alive = psutil.wait_procs(children, timeout=GONE_S)
        assert alive == []
        assert left_of(shared) == []
        assert [path for path in tmp_path.iterdir() if path.is_socket()] == []
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def shared_memory(pid: int) -> set[Path]:
    """The files in shared memory that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split()[-1]) for line in lines if " /dev/shm/" in line}


def left_of(shared: set[Path]) -> list[Path]:
    """Those still there once nothing more goes away by itself: vLLM's resource trackers need a moment."""
    end = time.monotonic() + GONE_S
    while (left := [path for path in shared if path.exists()]) and time.monotonic() < end:
        time.sleep(0.1)
    return left
