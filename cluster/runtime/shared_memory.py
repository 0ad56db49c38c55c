"""Files in `/dev/shm` that processes of a dead run had mapped: vLLM's message queues and their semaphores.

Their makers unlink them when they end in order; after a SIGKILL nobody does. A file is removed only when it was mapped
by a process that is being cleared, belongs to this user, and no process maps it any more.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

FOLDER = "/dev/shm/"


def mapped_by(pids: Iterable[int]) -> set[Path]:
    """The files of `/dev/shm` that any of these processes has mapped now."""
    return {path for pid in pids for path in _mapped(pid)}


def remove_unused(files: Iterable[Path]) -> list[Path]:
    """Remove those that are left and that nobody maps; returns what was removed."""
    left = {path for path in files if _is_ours(path)}
    if not left:
        return []
    unused = sorted(left - mapped_by(int(name) for name in os.listdir("/proc") if name.isdigit()))
    for path in unused:
        path.unlink(missing_ok=True)
    return unused


def _mapped(pid: int) -> set[Path]:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        paths = (line.partition(FOLDER)[2] for line in lines if FOLDER in line)
        return {Path(FOLDER + name) for name in paths if not name.endswith(" (deleted)")}
    return set()


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False
