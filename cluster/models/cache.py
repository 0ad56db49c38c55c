"""A folder of finished models, `$BATON_CACHE` or `~/.cache/baton/models`, one folder for each name.

Invariant: a folder that is there is whole. It is made under another name, sealed with a digest of its content, and
renamed; a maker that dies leaves only a `.making-*` folder, which the next one removes. One maker at a time (a lock
file for each name).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

SEAL = "baton.json"
CHUNK_BYTES = 1024 * 1024


def cache_folder() -> Path:
    """Where the models are."""
    chosen = os.environ.get("BATON_CACHE")
    return Path(chosen).expanduser() if chosen else Path("~/.cache/baton/models").expanduser()


def cached(name: str) -> Path | None:
    """The folder of a model that is there and whole, else None. Reads every byte: 0.3 s for the demo model."""
    folder = cache_folder() / name
    try:
        sealed = json.loads((folder / SEAL).read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return folder if sealed == digest(folder) else None


def digest(folder: Path) -> str:
    """SHA-256 over the names and contents of all files of a folder, except its seal."""
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL):
        total.update(f"{file.relative_to(folder).as_posix()}\0{file_sha256(file)}\n".encode())
    return total.hexdigest()


def file_sha256(file: Path) -> str:
    """SHA-256 of one file, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def obtain(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of `name`; where it is not there or not whole, `make` fills an empty folder that takes its place."""
    with _lock(name):
        folder = cached(name)
        if folder:
            return folder
        folder = cache_folder() / name
        _remove_unfinished(name)
        with _making(name) as new:
            make(new)
            (new / SEAL).write_text(json.dumps({"name": name, "sha256": digest(new)}), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
        return folder


@contextlib.contextmanager
def _making(name: str) -> Iterator[Path]:
    new = Path(tempfile.mkdtemp(prefix=f".making-{name}-", dir=cache_folder()))
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _remove_unfinished(name: str) -> None:
    for left in cache_folder().glob(f".making-{name}-*"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f".lock-{name}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
