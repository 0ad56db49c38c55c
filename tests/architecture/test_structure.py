"""The tree keeps its promises: import contracts, names of its own, short files, documents that are true."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.shape import shape
from tests.architecture.source import PACKAGES, ROOT, modules, tracked

MAX_LINES = 400
TEXT = {".py", ".md", ".yaml", ".toml", ".txt", ".lock", ".json", ""}

FORBIDDEN = ("/".join(("", "work", "")), "/".join(("", "opt", "")), "download." + "pytorch.org", "pypi." + "org/simple")
"""Paths of one machine and hosts of registries: what belongs to a user's own configuration."""


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_claims_our_package_names(package: str) -> None:
    claimed = importlib.metadata.packages_distributions().get(package, [])
    assert set(claimed) <= {"baton-serve"}


def test_no_file_is_too_long() -> None:
    long = {
        str(path.relative_to(ROOT)): count for path in modules() if (count := path.read_text().count("\n")) > MAX_LINES
    }
    assert long == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        path for path in modules() if path.read_text().strip() and not path.read_text().lstrip().startswith('"""')
    ]
    assert silent == []


def test_the_tree_names_no_machine_and_no_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked()
        if path.suffix in TEXT
        for word in FORBIDDEN
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_over_half_of_the_product_is_free_of_engines_loops_and_sockets() -> None:
    measured = shape()
    assert measured.pure_lines / measured.total_lines > 0.5, str(measured)
