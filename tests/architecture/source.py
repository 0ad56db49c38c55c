"""What the checks of this folder look at: the tracked files, and the product's modules."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cluster", "routing", "kvtransfer", "configs")


def tracked() -> list[Path]:
    """Every file git knows or would add, that is there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file()]


def modules() -> list[Path]:
    """The product's Python files."""
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES]


def lines(path: Path) -> int:
    """Lines of a file that are not blank."""
    return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
