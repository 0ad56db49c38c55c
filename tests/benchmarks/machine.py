"""Where and what was measured: every benchmark prints this above its figures."""

import os
import platform
import subprocess
from pathlib import Path


def describe() -> str:
    """One line: CPU model, cores, kernel, Python, commit (with a + when the tree has changes)."""
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{_cpu_model()}, {os.cpu_count()} cores, {system}, commit {_commit()}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
