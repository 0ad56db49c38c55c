"""Where the disk is waited for: threads, so that the store's loop never is."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

Done = Callable[[Any], None]
"""Told the result of a job, or the exception it ended with."""


class DiskWork(Protocol):
    """Carries out blocking jobs, begun in order, and says so in the loop."""

    @property
    def room(self) -> int:
        """How many more jobs should be added."""
        ...

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        """Carry out one more, whether there is room or not."""
        ...

    async def close(self) -> None:
        """Carry out no more; return when nothing runs. Jobs that had not begun end with `CancelledError`."""
        ...


class ThreadWork:
    """`threads` threads, with room for `most` jobs."""

    def __init__(self, name: str, threads: int, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._under_way: set[Future[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def room(self) -> int:
        return max(0, self._most - len(self._under_way))

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        future = self._pool.submit(job)
        self._under_way.add(future)
        self._idle.clear()
        future.add_done_callback(lambda ended: self._loop.call_soon_threadsafe(self._ended, ended, done))

    async def close(self) -> None:
        for future in list(self._under_way):
            future.cancel()
        await asyncio.to_thread(self._pool.shutdown)
        await self._idle.wait()

    def _ended(self, future: Future[Any], done: Done) -> None:
        self._under_way.discard(future)
        if future.cancelled():
            done(asyncio.CancelledError())
        else:
            done(future.exception() or future.result())
        if not self._under_way:
            self._idle.set()
