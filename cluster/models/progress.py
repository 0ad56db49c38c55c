"""The seam between work that takes a while and whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a step is. `total_bytes` is None for a step that is measured by nothing but time."""

    step: str
    done_bytes: int = 0
    total_bytes: int | None = None


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Shows nothing."""
