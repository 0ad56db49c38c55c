"""Compiled functions are kept on disk by the time of their own file: numba does not see that another file changed."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, modules

DECORATOR = "compiled"


def compiled_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(each, ast.Name) and each.id == DECORATOR for each in node.decorator_list)
    ]


def ours(tree: ast.Module) -> set[str]:
    """Names that a file takes from another file of ours."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("routing.")
        for alias in node.names
    }


def names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("path", [p for p in modules() if f"@{DECORATOR}" in p.read_text()], ids=lambda p: p.stem)
def test_a_compiled_function_uses_nothing_of_another_file(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for function in compiled_functions(tree):
        annotations = [each.annotation for each in ast.walk(function) if isinstance(each, ast.AnnAssign)]
        used = set[str]().union(*map(names, function.body)) - set[str]().union(*map(names, annotations))
        assert not used & ours(tree), f"{path.relative_to(ROOT)}: {function.name}"
