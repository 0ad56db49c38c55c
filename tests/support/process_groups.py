"""Ends what a test has started in a group of its own."""

import os
import signal

import psutil

END_S = 20.0


def end_group(leader: int) -> None:
    """End a process group, and what its members have started: at once where they do not go by themselves."""
    try:
        family = [psutil.Process(leader), *psutil.Process(leader).children(recursive=True)]
        os.killpg(leader, signal.SIGTERM)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return
    _, left = psutil.wait_procs(family, timeout=END_S)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=END_S)
