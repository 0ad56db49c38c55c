"""No process, shared memory or socket file of an engine outlives its owner, however that ends."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

GONE_S = 8.0
FOLDERS = (Path("/dev/shm"), Path(tempfile.gettempdir()))


def files_of_others() -> set[Path]:
    """What lies in the folders where engines leave things."""
    return {path for folder in FOLDERS for path in folder.iterdir()}


@pytest.mark.parametrize("ending", ["killed", "closed"])
def test_an_owner_takes_everything_of_its_engine_along_and_needs_no_store(ending: str) -> None:
    before = files_of_others()
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.owner", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdin is not None
        assert any(line.strip() == "ready" for line in owner.stdout)
        children = psutil.Process(owner.pid).children(recursive=True)
        assert len(children) >= 2
        if ending == "killed":
            owner.send_signal(signal.SIGKILL)
        owner.stdin.close()
        owner.wait(30.0)
        _, alive = psutil.wait_procs(children, timeout=GONE_S)
        assert alive == []
        assert left_after(before) == set()
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def left_after(before: set[Path]) -> set[Path]:
    """New shared memory and sockets, once nothing more goes away by itself."""
    end = time.monotonic() + GONE_S
    while left := {
        path for path in files_of_others() - before if path.name.startswith(("psm_", "sem.")) or _socket(path)
    }:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return left


def _socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        return False
