"""The disk's threads, in steps that a test takes."""

from collections import deque
from collections.abc import Callable
from typing import Any

from kvtransfer.disk.work import Done


class SteppedWork:
    """Implements `kvtransfer.disk.work.DiskWork`. A job is carried out when the test says so."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: deque[tuple[Callable[[], Any], Done]] = deque()

    @property
    def room(self) -> int:
        return max(0, self._most - len(self._jobs))

    @property
    def is_busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self._jobs)

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        self._jobs.append((job, done))

    def step(self) -> bool:
        """Carry out the oldest job. False when there is none."""
        if not self._jobs:
            return False
        job, done = self._jobs.popleft()
        try:
            result = job()
        except Exception as error:
            result = error
        done(result)
        return True

    async def close(self) -> None:
        """Nothing runs between two steps."""


class PromptWork(SteppedWork):
    """Carries out each job as it is submitted."""

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        super().submit(job, done)
        self.step()
