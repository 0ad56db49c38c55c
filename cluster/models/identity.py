"""Whether two workers serve the same model: a digest that is cheap to take and changes with config or weights.

Covers `config.json` whole and, of every weight file, its name, its size and its first and last 64 KiB. Does not read
whole weight files. A hub name that is no local folder stands for itself.
"""

import hashlib
from pathlib import Path

EDGE_BYTES = 64 * 1024
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")


def model_digest(path: str) -> str:
    """32 hexadecimal characters for a local folder or file; the name itself for a hub name."""
    local = Path(path).expanduser()
    if not local.exists():
        return path
    digest = hashlib.sha256()
    for file in _files(local):
        _add(digest, file)
    return digest.hexdigest()[:32]


def _files(local: Path) -> list[Path]:
    if local.is_file():
        return [local]
    weights = [entry for entry in local.iterdir() if entry.suffix in WEIGHT_SUFFIXES and entry.is_file()]
    return [entry for entry in [local / "config.json", *sorted(weights)] if entry.is_file()]


def _add(digest: "hashlib._Hash", file: Path) -> None:
    size = file.stat().st_size
    digest.update(f"{file.name}\0{size}\0".encode())
    with file.open("rb") as stream:
        if file.suffix == ".json" or size <= 2 * EDGE_BYTES:
            digest.update(stream.read())
            return
        digest.update(stream.read(EDGE_BYTES))
        stream.seek(size - EDGE_BYTES)
        digest.update(stream.read(EDGE_BYTES))
