"""The request body, no longer than allowed."""

from cluster.gateway.asgi_types import Headers, Message, Receive


class BodyTooLarge(Exception):
    """The client sends more than is allowed. Raised into whoever reads the body."""


class BoundedBody:
    """An ASGI `receive` that ends a body that grows too long. `exceeded` stays set: frameworks swallow exceptions."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive = receive
        self._left = max_bytes
        self.exceeded = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.exceeded = True
            raise BodyTooLarge
        return message


def declared_bytes(headers: Headers) -> int | None:
    """What `Content-Length` says; None when it says nothing."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None
