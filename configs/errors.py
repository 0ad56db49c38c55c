"""What is wrong with a configuration, said so that its writer can mend it.

A `ConfigError` holds every problem found at once, each on a line of its own: source, key, what was given, what is
allowed. The source is a file (with a line where only that is known) or `--set`.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `key` is a dotted path, empty where the whole source is meant."""

    source: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.message) if part)


class ConfigError(ValueError):
    """The configuration cannot be used; the user's to mend."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
