"""No process of an engine outlives its owner."""

import signal
import subprocess
import sys

import psutil
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

GONE_S = 5.0


def test_a_killed_owner_takes_its_engine_along_and_needs_no_store() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.owner", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert any(line.strip() == "ready" for line in owner.stdout)
        children = psutil.Process(owner.pid).children(recursive=True)
        assert len(children) >= 2
        owner.send_signal(signal.SIGKILL)
        owner.wait(GONE_S)
        _, alive = psutil.wait_procs(children, timeout=GONE_S)
        assert alive == []
    finally:
        owner.kill()
        owner.communicate()
