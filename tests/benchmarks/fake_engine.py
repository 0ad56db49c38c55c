"""The fake engine all targets share: a step loop in which each running request gets one token, always the same text.

With `step_s` 0 a step lasts one turn of the event loop (the engine is never what limits). Otherwise a step happens
every `step_s` by the clock: a loop that falls behind makes up for it, and the tokens it missed arrive together, as
they would from an engine in a process of its own.
"""

import asyncio
import time
from collections.abc import Callable

TOKEN_ID = 1000
TOKEN_TEXT = " tok"

Emit = Callable[[int, bool], None]  # how many new tokens, whether the last is among them


class Run:
    """One request: it gets exactly `tokens` tokens unless it is cancelled."""

    __slots__ = ("emit", "left")

    def __init__(self, tokens: int, emit: Emit) -> None:
        self.left = tokens
        self.emit = emit

    def advance(self, tokens: int) -> bool:
        """Emit up to `tokens` tokens; whether the run has ended."""
        count = min(tokens, self.left)
        self.left -= count
        self.emit(count, self.left == 0)
        return self.left == 0


class FakeEngine:
    """Steps all running requests together. Its owner spawns `serve` and cancels it."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._running: dict[Run, None] = {}
        self._wake = asyncio.Event()

    def start(self, tokens: int, emit: Emit) -> Run:
        """Let a request run; its first token comes with the next step."""
        run = Run(tokens, emit)
        self._running[run] = None
        self._wake.set()
        return run

    def cancel(self, run: Run) -> None:
        """Nothing is emitted for the run after this. It may have ended."""
        self._running.pop(run, None)

    async def serve(self) -> None:
        """Step for ever."""
        while True:
            await self._wake.wait()
            await self._busy()
            self._wake.clear()

    async def _busy(self) -> None:
        stepped_at = time.perf_counter() - self._step_s
        while self._running:
            steps = 1
            if self._step_s:
                steps = int((time.perf_counter() - stepped_at) / self._step_s)
                stepped_at += steps * self._step_s
            for run in list(self._running) if steps else ():
                if run.advance(steps):
                    self._running.pop(run, None)
            await asyncio.sleep(max(0.0, stepped_at + self._step_s - time.perf_counter()) if self._step_s else 0)
