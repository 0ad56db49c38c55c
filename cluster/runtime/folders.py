"""The files of a run: Ray's and HAProxy's, in one private folder `/tmp/baton-<uid>/<pid>-<ticks>` (in hexadecimal).

`BATON_RUNS` names another outer folder. Short, because Unix socket paths end at 107 bytes: Ray adds up to 64 to it,
HAProxy 68. `/tmp` can be written by everyone, so the outer folder is used only when it is ours alone.
"""

import os
import shutil
import stat
from pathlib import Path

from cluster.runtime.mark import FOLDER_VARIABLE, RunMark


class UnsafeFolder(Exception):
    """Somebody else owns, or may write, the folder our runs would lie in."""


def runs_folder() -> Path:
    """Where all runs of this user are. Made when missing; raises `UnsafeFolder`."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or f"/tmp/baton-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UnsafeFolder(f"{folder} is not a folder that only this user can write; remove it")
    return folder


def run_folder(mark: RunMark) -> Path:
    """The folder of one run, whether or not it exists."""
    return runs_folder() / f"{mark.pid:x}-{mark.start_ticks:x}"


def make_run_folder(mark: RunMark) -> Path:
    """The folder of one run, made when missing."""
    folder = run_folder(mark)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def is_run_folder(folder: Path) -> bool:
    """Whether it is named as a run's folder is, wherever that run had its folders. It need not exist any more."""
    return _mark_of(folder.name) is not None


def existing_runs() -> list[RunMark]:
    """Every run that has a folder, alive or dead."""
    return [mark for mark in (_mark_of(path.name) for path in runs_folder().iterdir()) if mark]


def remove_run_folder(mark: RunMark) -> bool:
    """Remove a run's folder; whether there was one."""
    folder = run_folder(mark)
    there = folder.is_dir()
    shutil.rmtree(folder, ignore_errors=True)
    return there


def _mark_of(name: str) -> RunMark | None:
    pid, _, ticks = name.partition("-")
    try:
        return RunMark(int(pid, 16), int(ticks, 16))
    except ValueError:
        return None
