"""No engine process outlives the process that owns the engine, even if that is killed.

vLLM's engine core ignores its parent's death; a thread here waits on a pidfd of the owner, which becomes readable the
moment it is gone, and ends this process without ceremony: nothing it holds is worth keeping. In a process that was
stopped no thread runs: a child of its owner also asks the kernel to kill it then.
"""

import ctypes
import os
import select
import signal
import threading

EXIT_STATUS = 9
PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>: the signal to this process when the thread that started it ends."""


def die_with(owner_pid: int) -> None:
    """End this process when process `owner_pid` ends; at once when it is gone already."""
    if owner_pid == os.getpid():
        return
    try:
        owner = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        os._exit(EXIT_STATUS)
    if owner_pid == os.getppid():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_after, args=(owner,), name="owner-watch", daemon=True).start()


def _exit_after(owner: int) -> None:
    """The one wait in this package without a deadline: it is the deadline."""
    poller = select.poll()
    poller.register(owner, select.POLLIN)
    poller.poll()
    os._exit(EXIT_STATUS)
