"""What the documents name exists, and what they tell to type works."""

import re
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(r"`((?:cluster|routing|kvtransfer|configs|tests|docs)/[\w./-]+)`")
TESTS = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINKED = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def name(path: Path) -> str:
    """A document as a test's name."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_file_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    named = [ROOT / found for found in NAMED.findall(text)] + [
        document.parent / found for found in LINKED.findall(text)
    ]
    assert [str(path) for path in named if not path.exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_test_a_document_names_exists(document: Path) -> None:
    named = TESTS.findall(document.read_text())
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in _text(ROOT / file)]
    assert missing == []


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_the_page_on_faults_names_every_test_of_their_folder() -> None:
    tests = {
        f"{path.relative_to(ROOT)}::{test}"
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for test in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), flags=re.MULTILINE)
    }
    named = {"::".join(pair) for pair in TESTS.findall((ROOT / "docs" / "faults.md").read_text())}
    assert tests <= named


def test_every_make_command_of_the_readme_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named
    assert named <= targets


def test_every_baton_command_of_the_readme_exists() -> None:
    from typer.main import get_command

    from cluster.cli.main import app

    commands = get_command(app).commands
    named = set(re.findall(r"`baton ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"serve", "status", "model", "config"} <= named <= set(commands)


@pytest.mark.parametrize("decision", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=name)
def test_a_decision_is_a_page(decision: Path) -> None:
    assert 15 <= len(decision.read_text().splitlines()) <= 45
