"""The way back of one HTTP request: vLLM's answer, with the status, headers and shape it should have had.

The start of an answer is held until its first byte. That lets a stream that fails before its first token answer with
the error's status, a body that is not what the API specifies be put right, and its length be corrected.
"""

from http import HTTPStatus

from cluster.gateway.asgi_types import Headers, Message, Send
from cluster.gateway.body import BoundedBody
from cluster.gateway.failures import Failure, error_body, retry_after
from cluster.gateway.routes import Shape
from cluster.gateway.scope import RequestScope
from cluster.gateway.shapes import reshape, reshape_events


class Reply:
    """An ASGI `send`. Nothing of an answer goes out twice; what comes after a replaced answer is dropped."""

    def __init__(self, send: Send, request: RequestScope, body: BoundedBody, shape: Shape) -> None:
        self._send = send
        self._request = request
        self._body = body
        self._shape = shape
        self._held: Message | None = None
        self._early = b""
        self._events = 0
        self._streaming = False
        self._replaced = False
        self.started = False

    async def __call__(self, message: Message) -> None:
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            self._held = message
            self._streaming = _header(message["headers"], b"content-type").startswith(b"text/event-stream")
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._held is None:
            await self._send(self._shaped(message))
        else:
            await self._begin(self._held, message)

    async def fail(self, failure: Failure) -> None:
        """Answer with an error instead. Only while nothing has gone out."""
        self._replaced = self.started = True
        body = failure.body(self._shape)
        headers = [*failure.headers(), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": failure.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def abandon(self, failure: Failure) -> None:
        """The application broke: an error answer, or the error as the stream's last event."""
        if not self.started:
            await self.fail(failure)
        elif self._streaming and not self._replaced:
            self._replaced = True
            await self._send({"type": "http.response.body", "body": failure.event(self._shape, self._events)})

    async def _begin(self, start: Message, first: Message) -> None:
        more = first.get("more_body", False)
        if self._body.refusal is not None:
            await self.fail(self._body.refusal)
        elif not self._streaming:
            await self._whole(start, first) if not more else await self._go(start, first)
        elif self._request.failure is not None and not self._request.answering:
            await self.fail(self._request.failure)
        elif more and self._says_nothing(first):
            self._early += first.get("body", b"")
        else:
            await self._go(start, self._shaped({**first, "body": self._early + first.get("body", b"")}))

    def _says_nothing(self, message: Message) -> bool:
        """Whether this part of a stream would come however the request ends: a Response is announced at once."""
        return not message.get("body") or (self._shape is Shape.RESPONSE and not self._request.answering)

    async def _whole(self, start: Message, message: Message) -> None:
        """An answer in one piece."""
        status: int = start["status"]
        headers: Headers = list(start["headers"])
        body: bytes = message.get("body", b"")
        is_json = _header(headers, b"content-type").startswith(b"application/json")
        if status >= HTTPStatus.BAD_REQUEST:
            body = error_body(body, status, self._shape)
            headers = _replace(headers, b"content-type", b"application/json")
            headers += retry_after(status, self._request.failure.retry_after_s if self._request.failure else None)
        elif is_json and not self._request.shaped:
            body = reshape(body, self._shape)
        start["headers"] = _replace(headers, b"content-length", str(len(body)).encode())
        message["body"] = body
        await self._go(start, message)

    async def _go(self, start: Message, message: Message) -> None:
        self._held = None
        self.started = True
        await self._send(start)
        await self._send(message)

    def _shaped(self, message: Message) -> Message:
        if self._streaming and not self._request.shaped and message.get("body"):
            message["body"] = self._corrected(reshape_events(message["body"], self._shape))
        return message

    def _corrected(self, events: bytes) -> bytes:
        """vLLM's Messages API reports how it failed to report an error."""
        self._events += events.count(b"data: ")
        failure = self._request.failure
        if failure is not None and self._shape is Shape.MESSAGE and events.startswith(b"event: error"):
            return failure.event(self._shape, self._events)
        return events


def _header(headers: Headers, name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")


def _replace(headers: Headers, name: bytes, value: bytes) -> Headers:
    return [*((k, v) for k, v in headers if k != name), (name, value)]
