"""A driver to be killed: starts a marked tree, says its process ids, and waits.

    python -m tests.unit.runtime.driver reaper|alone

The tree: a child that ignores SIGTERM, and a grandchild in a session of its own.
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
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(grandchild.pid, flush=True)
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
    pids += [child.pid, int(child.stdout.readline())]
    print(current(), *pids, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
