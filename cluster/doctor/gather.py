"""Looks at the node it runs on. Starts nothing and changes nothing, but for a file that it writes and removes."""

import hashlib
import os
import platform
import resource
import shutil
import socket
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cluster.doctor.facts import FLAGS, PACKAGES, NodeFacts, Question, TlsFacts
from cluster.models.catalogue import CATALOGUE
from cluster.models.errors import ModelUnavailable
from kvtransfer.tls import Identity, TlsFiles, TlsUnusable

DAY_S = 86_400
SHARED_MEMORY = Path("/dev/shm")
MODEL_ERRORS = (ModelUnavailable, OSError, ValueError)


def gather(question: Question) -> NodeFacts:
    """The facts of this node, now."""
    return NodeFacts(
        python=platform.python_version(),
        versions=_versions(),
        flags={name: os.environ[name] for name in FLAGS if name in os.environ},
        shared_memory_bytes=shutil.disk_usage(SHARED_MEMORY).total,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        port_taken=_is_taken(question.host, question.port),
        model_error=_model_error(question.model),
        disk_error=_disk_error(question.disk) if question.disk else "",
        tls=_tls_facts(question.tls) if question.tls else None,
    )


def gpus() -> int:
    """CUDA devices of this machine."""
    import torch  # takes seconds to import

    return int(torch.cuda.device_count())


def clock() -> float:
    """This node's time, in seconds since the epoch."""
    return time.time()


def _versions() -> dict[str, str]:
    return {name: found for name in PACKAGES if (found := _version(name) or _version(f"{name}-cpu"))}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _is_taken(host: str, port: int) -> bool:
    """A listener is met by connecting, also where it may share its port; nothing is bound."""
    target = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host
    try:
        with socket.create_connection((target, port), timeout=1.0):
            return True
    except OSError:
        return False


def _model_error(model: str) -> str:
    """A catalogue model is fetched by whoever needs it; of any other the configuration must be readable here."""
    if model in CATALOGUE:
        return ""
    from transformers import AutoConfig  # takes seconds to import

    from cluster.models.fetch import resolve

    try:
        AutoConfig.from_pretrained(resolve(model), trust_remote_code=False)
    except MODEL_ERRORS as error:
        return str(error).strip().splitlines()[0]
    return ""


def _disk_error(folder: str) -> str:
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return ""
    except OSError as error:
        return str(error)


def _tls_facts(files: TlsFiles) -> TlsFacts:
    try:
        expires_at = Identity(files).expires_at
    except TlsUnusable as error:
        return TlsFacts(str(error))
    digest = hashlib.sha256(Path(files.authority).read_bytes()).hexdigest()
    return TlsFacts(days_left=(expires_at - clock()) / DAY_S, authority=digest)
