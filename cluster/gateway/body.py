"""The request body: text no longer than allowed, there in time, of no more pieces than can be looked at in no time.

Parsing and validating a body costs by the object, not by the byte: eight megabytes of text or token ids are read in a
moment, the same of tiny messages holds up every other request for many seconds. So pieces are counted first, in bytes.
Half of a surrogate pair is no text either: Python reads it and cannot write it, wherever an answer repeats it.
"""

import asyncio
import re
from http import HTTPStatus

from cluster.gateway.asgi_types import Headers, Message, Receive
from cluster.gateway.failures import Failure

TOO_LARGE = Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request body is too large")
TOO_MANY = Failure(HTTPStatus.BAD_REQUEST, "the request body has too many objects, lists and members")
NO_TEXT = Failure(HTTPStatus.BAD_REQUEST, "the request body is not UTF-8, or holds half a character")
TOO_LATE = Failure(HTTPStatus.REQUEST_TIMEOUT, "the request body did not arrive in time")
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
MOST_PIECES = 32 * 1024
"""Objects, lists and members together; a chat message is three. Validating as many takes about a fifth of a second."""

MOST_PIECES_OF_A_RESPONSE = 8 * 1024
"""An item of a Response may be one of thirty types, and each is tried: a tenth of a millisecond for a piece."""


class BodyRefused(Exception):
    """The body is not read any further. Raised into whoever reads it."""


class BoundedBody:
    """An ASGI `receive` that ends a body of too many bytes or pieces, or one that is not whole within `body_s`.

    `refusal` says which, and stays: frameworks swallow exceptions. Once the body is whole, waiting for the client to go
    away has no limit.
    """

    def __init__(self, receive: Receive, max_bytes: int, body_s: float, most_pieces: int = MOST_PIECES) -> None:
        self._receive = receive
        self._left = max_bytes
        self._most_pieces = most_pieces
        self._deadline = asyncio.get_running_loop().time() + body_s
        self._whole = False
        self._parts: list[bytes] = []
        self.refusal: Failure | None = None

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        message = await self._in_time()
        self._whole = not message.get("more_body", False)
        part = message.get("body", b"")
        self._left -= len(part)
        self._parts.append(part)
        if self._left < 0:
            raise self._refused(TOO_LARGE)
        if self._whole:
            parts, self._parts = self._parts, []
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            if has_more_pieces(body, self._most_pieces):
                raise self._refused(TOO_MANY)
            if not is_text(body):
                raise self._refused(NO_TEXT)
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


def is_text(body: bytes) -> bool:
    """Whether a JSON text can be written as well as read: UTF-8, and no half of a surrogate pair among its escapes."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    may_hold_halves = b"\\ud" in body or b"\\uD" in body
    return not may_hold_halves or _HALF.search(body.replace(rb"\\", b"")) is None


def has_more_pieces(body: bytes, most: int) -> bool:
    """Whether a JSON text has more than `most`. Strings are told apart only where that may matter."""
    return _pieces(body) > most and _pieces(_outside_strings(body)) > most


def _pieces(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[") + text.count(b":")


def _outside_strings(body: bytes) -> bytes:
    """Without escapes, every other part between quotes is a string."""
    return b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def declared_bytes(headers: Headers) -> int | None:
    """What `Content-Length` says; None when it says nothing."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None
