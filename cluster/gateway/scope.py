"""What belongs to one HTTP request: the generations it opened and how it failed before its first byte.

vLLM's handlers run in tasks of their own, and Serve cancels only the outermost one when a client goes away. The ASGI
wrapper therefore opens a scope for each request, everything inside finds it through a context variable, and closing
the scope ends every generation that is still open: a generation never outlives its HTTP request.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar

from cluster.dataplane.frames import Delta
from cluster.gateway.failures import Failure


class OpenGeneration:
    """One running `Backend.generate`. Invariant: after `close` its iterator yields nothing more."""

    def __init__(self, deltas: AsyncIterator[Sequence[Delta]]) -> None:
        self._deltas = deltas
        self._waiter: asyncio.Task[object] | None = None
        self._closed = False

    async def next(self) -> Sequence[Delta] | None:
        """The next step, None at the end. Raises CancelledError once closed."""
        if self._closed:
            raise asyncio.CancelledError
        self._waiter = asyncio.current_task()
        try:
            return await anext(self._deltas, None)
        finally:
            self._waiter = None

    async def close(self) -> None:
        """Abort the request unless it has ended, whoever is waiting for its next step. May be called twice."""
        self._closed = True
        if self._waiter is not None and self._waiter is not asyncio.current_task():
            self._waiter.cancel()
            return
        close = getattr(self._deltas, "aclose", None)
        if close is not None:
            await close()


class RequestScope:
    """One HTTP request as the gateway sees it."""

    __slots__ = ("answering", "closed", "failure", "first_token_s", "generates", "open", "shaped", "takes_bytes")

    def __init__(self) -> None:
        self.first_token_s: float | None = None  # how long the client waits for it, if it told
        self.open: set[OpenGeneration] = set()
        self.generates = False  # a generation was opened
        self.answering = False  # a generation has made its first step
        self.failure: Failure | None = None  # the latest error, whose status a stream not yet begun takes
        self.shaped = False  # the body already has the shape `cluster.gateway.shapes` gives it
        self.takes_bytes = False  # an answer in one piece may be the bytes of its body
        self.closed = False  # the HTTP request is over

    def enter(self, generation: OpenGeneration) -> None:
        """Own `generation` until `leave` or `close`. Raises CancelledError when the request is over."""
        if self.closed:
            raise asyncio.CancelledError
        self.generates = True
        self.open.add(generation)

    def leave(self, generation: OpenGeneration) -> None:
        """The generation has ended by itself."""
        self.open.discard(generation)

    async def close(self) -> None:
        """The HTTP request is over: end whatever it left open."""
        self.closed = True
        for generation in tuple(self.open):
            self.open.discard(generation)
            await generation.close()


current_scope: ContextVar[RequestScope | None] = ContextVar("gateway_request", default=None)
