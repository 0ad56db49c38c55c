"""An asyncio event loop in virtual time: when nothing is ready, the clock jumps to the next timer.

Nothing waits, so hours take milliseconds and the same program makes the same steps each time. There is no I/O. A
program that would wait for ever raises `Deadlock`.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """No task is ready and no timer is set."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` is the virtual clock, in seconds from 0."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self._now_s

    def _jump(self, seconds: float) -> None:
        self._now_s += max(0.0, seconds)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end in virtual time. What a timer or a forgotten task raised is raised here."""
    lost: list[BaseException] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: lost.append(_error(context)))
        result = runner.run(main)
    if lost:
        raise lost[0]
    return result


def _error(context: dict[str, Any]) -> BaseException:
    return context.get("exception") or RuntimeError(context["message"])
