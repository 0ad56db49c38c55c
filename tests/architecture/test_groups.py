"""`make test` runs the tests in groups, which it finds by folder and mark: none is in no group."""

import re

from tests.architecture.source import ROOT, tracked

FOLDERS = {
    "ray": {"tests/ray"},
    "engine": {"tests/contracts", "tests/engine", "tests/ray"},
    "cores": {"tests/unit/workers"},
}
"""Where the tests with a mark may be; the Makefile names these folders."""


def test_marked_tests_are_where_their_group_looks_for_them() -> None:
    modules = [path for path in tracked() if path.name.startswith(("test_", "conftest")) and path.suffix == ".py"]
    marks = re.compile(rf"pytest\.mark\.({'|'.join(FOLDERS)})\b")
    found: dict[str, set[str]] = {mark: set() for mark in FOLDERS}
    for module in modules:
        for mark in marks.findall(module.read_text(encoding="utf-8")):
            found[mark].add(str(module.relative_to(ROOT).parent))
    assert found == FOLDERS
    for folder in found["ray"] | found["engine"]:
        assert folder in (ROOT / "Makefile").read_text()


def test_every_test_of_the_ray_folder_has_its_mark() -> None:
    unmarked = [path.name for path in (ROOT / "tests" / "ray").glob("test_*.py") if "mark.ray" not in path.read_text()]
    assert unmarked == []
