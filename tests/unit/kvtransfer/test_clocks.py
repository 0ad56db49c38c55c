"""No wait of this package looks at the wall clock, which may jump."""

import ast
from pathlib import Path

import kvtransfer

WALL_CLOCKS = {"time", "time_ns", "ctime", "localtime", "gmtime", "now", "utcnow", "today"}


def test_nothing_here_asks_for_the_time_of_day() -> None:
    folder = Path(kvtransfer.__path__[0])
    asked = [
        f"{path.relative_to(folder)}:{node.lineno}"
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("time", "datetime", "date")
        and node.func.attr in WALL_CLOCKS
    ]
    assert asked == []
