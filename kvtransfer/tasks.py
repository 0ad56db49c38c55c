"""Tasks that outlive the call that started them, kept and awaited by one owner."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class TaskSet:
    """Owned by an object with a `close`. Whoever needs a task's outcome hears it from the task; a task that breaks is
    logged here.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `work`; it is kept until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task broke", exc_info=error)

    def __len__(self) -> int:
        return len(self._tasks)


async def outlast(future: asyncio.Future[Any], hurry: Callable[[], None]) -> None:
    """Wait for what must end before its waiter may, such as a thread that writes into a slot. A cancellation asks it to
    hurry and is raised afterwards; it has to end soon then.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
            hurry()
    if cancelled is not None:
        raise cancelled
