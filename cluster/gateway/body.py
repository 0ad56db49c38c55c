"""The request body: no longer than allowed, and there in time."""

import asyncio
from http import HTTPStatus

from cluster.gateway.asgi_types import Headers, Message, Receive
from cluster.gateway.failures import Failure

TOO_LARGE = Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request body is too large")
TOO_LATE = Failure(HTTPStatus.REQUEST_TIMEOUT, "the request body did not arrive in time")


class BodyRefused(Exception):
    """The body is not read any further. Raised into whoever reads it."""


class BoundedBody:
    """An ASGI `receive` that ends a body of more than `max_bytes`, or one that is not whole within `body_s`.

    `refusal` says which, and stays: frameworks swallow exceptions. Once the body is whole, waiting for the client to go
    away has no limit.
    """

    def __init__(self, receive: Receive, max_bytes: int, body_s: float) -> None:
        self._receive = receive
        self._left = max_bytes
        self._deadline = asyncio.get_running_loop().time() + body_s
        self._whole = False
        self.refusal: Failure | None = None

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        message = await self._in_time()
        self._whole = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise self._refused(TOO_LARGE)
        return message

    async def _in_time(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            raise self._refused(TOO_LATE) from None

    def _refused(self, failure: Failure) -> BodyRefused:
        self.refusal = failure
        return BodyRefused(failure.message)


def declared_bytes(headers: Headers) -> int | None:
    """What `Content-Length` says; None when it says nothing."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None
