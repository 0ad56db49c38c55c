"""What a process uses, and what it complains of, while it is fuzzed."""

import asyncio
import logging
import time
from dataclasses import dataclass

import psutil

REST_S = 15.0
GROWTH_MIB = 64.0
"""Allocators keep what they once had: a leak of the frames or bodies themselves would be more."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory, file descriptors and asyncio's tasks."""

    rss_mib: float
    fds: int
    tasks: int

    @classmethod
    def now(cls) -> "Footprint":
        """Measured in the loop."""
        process = psutil.Process()
        return cls(process.memory_info().rss / 2**20, process.num_fds(), len(asyncio.all_tasks()))

    @classmethod
    async def at_rest(cls, before: "Footprint") -> "Footprint":
        """Measured when what ends by itself has ended: connections kept alive, long polls."""
        end = time.monotonic() + REST_S
        while before.growth(cls.now()) and time.monotonic() < end:  # noqa: ASYNC110  # nobody announces rest
            await asyncio.sleep(0.1)
        return cls.now()

    def growth(self, later: "Footprint") -> list[str]:
        """What has grown since and should not have."""
        found = [] if later.rss_mib - self.rss_mib <= GROWTH_MIB else [f"memory grew from {self} to {later}"]
        if later.fds > self.fds:
            found.append(f"file descriptors grew from {self.fds} to {later.fds}")
        if later.tasks > self.tasks:
            found.append(f"tasks grew from {self.tasks} to {later.tasks}")
        return found

    def __str__(self) -> str:
        return f"{self.rss_mib:.0f} MiB, {self.fds} fds, {self.tasks} tasks"


class ErrorLog(logging.Handler):
    """Keeps what is logged as an error, while it is entered: asyncio's lost exceptions included, but not what
    vLLM keeps to itself, which calls a client's fault an error too.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(logging.Formatter("%(name)s: %(message)s").format(record))

    def taken(self) -> list[str]:
        """What was said since the last time."""
        said, self._said = self._said, []
        return said

    def __enter__(self) -> "ErrorLog":
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
