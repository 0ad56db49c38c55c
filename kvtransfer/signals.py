"""Wakes who waits for a named thing to change. A wake-up promises nothing: the waiter looks again."""

import asyncio
from collections.abc import Hashable
from typing import Protocol


class Notify(Protocol):
    """Told what has changed, by name."""

    def __call__(self, *names: Hashable) -> None:
        """All of these."""
        ...


class Signals:
    """Futures by name. A cancelled waiter leaves nothing behind."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Future[None]]] = {}

    async def changed(self, name: Hashable) -> None:
        """Return at the next `notify(name)`. The caller brings the deadline."""
        future = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(name, set())
        waiting.add(future)
        try:
            await future
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(name) is waiting:
                del self._waiting[name]

    def notify(self, *names: Hashable) -> None:
        """Wake everybody who waits for one of these."""
        if self._waiting.keys().isdisjoint(names):
            return
        for name in [name for name in names if name in self._waiting]:
            for future in self._waiting.pop(name, ()):
                if not future.done():
                    future.set_result(None)

    def __len__(self) -> int:
        """How many names are waited for."""
        return len(self._waiting)
