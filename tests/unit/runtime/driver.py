"""A driver to be killed: starts a marked tree, says its process ids, and waits.

    python -m tests.unit.runtime.driver reaper|alone

The tree: a child that ignores SIGTERM and holds named shared memory, and a grandchild in a session of its own.
"""

import os
import signal
import subprocess
import sys

from cluster.runtime.flags import serve_flags
from cluster.runtime.mark import current
from cluster.runtime.reaper import Reaper

STUBBORN = """
import signal, subprocess, sys
from multiprocessing import resource_tracker, shared_memory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = shared_memory.SharedMemory(create=True, size=64)
resource_tracker.unregister(memory._name, "shared_memory")
grandchild = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(grandchild.pid, memory.name, flush=True)
signal.pause()
"""


def main(kind: str) -> None:
    """Print the mark and the process ids, then wait for the end."""
    os.environ.update(serve_flags())
    pids = []
    if kind == "reaper":
        pids.append(Reaper(current()).pid)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    grandchild_pid, memory = child.stdout.readline().split()
    print(current(), memory, *pids, child.pid, grandchild_pid, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
