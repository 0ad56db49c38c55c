"""Prints the shape of the code: `python -m tests.architecture.shape`.

A module is pure when nothing it imports, anywhere in the file, is an engine, a runtime, an event loop or a socket.
"""

import ast
import statistics
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source import ROOT, lines, modules

IMPURE = frozenset({"ray", "vllm", "torch", "asyncio", "socket", "zmq", "uvloop", "selectors"})


@dataclass(frozen=True, slots=True)
class Shape:
    """Non-blank lines of product code."""

    total_lines: int
    pure_lines: int
    median_lines: float
    largest: Path
    largest_lines: int

    def __str__(self) -> str:
        share = self.pure_lines / self.total_lines
        return (
            f"{self.total_lines} lines of product code; {share:.0%} in modules free of {', '.join(sorted(IMPURE))}; "
            f"median file {self.median_lines:.0f} lines, largest {self.largest.relative_to(ROOT)} with "
            f"{self.largest_lines}"
        )


def imports(path: Path) -> set[str]:
    """Top-level names of everything a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def shape() -> Shape:
    """Measure the tree; files without a line do not count."""
    sizes = {path: size for path in modules() if (size := lines(path))}
    largest = max(sizes, key=lambda path: sizes[path])
    return Shape(
        total_lines=sum(sizes.values()),
        pure_lines=sum(size for path, size in sizes.items() if not imports(path) & IMPURE),
        median_lines=statistics.median(sizes.values()),
        largest=largest,
        largest_lines=sizes[largest],
    )


if __name__ == "__main__":
    print(shape())
