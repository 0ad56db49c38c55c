"""How a request's failure is told to its client: status, headers and the error body of the API that was called. Pure.

vLLM's handlers never set `Retry-After` and answer an error before the first token of a stream with 200; `Failure`
carries what the ASGI wrapper needs to put both right. Messages are for clients: no traceback, no path. Anthropic's API
has error bodies of its own, all others OpenAI's.
"""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from cluster.errors import BatonError
from cluster.gateway.routes import Shape

_OPENAI_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_RETRYABLE = (429, 503)
_DEFAULT_RETRY_AFTER_S = 1.0
_LONGEST_PATIENCE_S = 60.0
"""Clients made from OpenAI's generator (openai, anthropic) wait no longer: most try again within a second instead."""

_NO_RETRY = (b"x-should-retry", b"false")  # such clients try a 408, a 429 and every 5xx again unless they are told this
MAX_MESSAGE_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Failure:
    """How a request failed, as a client is told."""

    status: int
    message: str
    retry_after_s: float | None = None
    kind: str | None = None
    param: str | None = None
    allow: tuple[str, ...] = ()  # the methods a 405 names

    @classmethod
    def of(cls, error: BatonError) -> "Failure":
        """The client's view of one of our errors."""
        return cls(error.status, str(error) or type(error).__name__, error.retry_after_s)

    def body(self, shape: Shape = Shape.OTHER) -> bytes:
        """The error body of the API that was called."""
        kind = self.kind or _OPENAI_TYPES.get(self.status, "InternalServerError")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.status}
        return _body(error, self.status, shape)

    def event(self, shape: Shape, number: int) -> bytes:
        """The failure as the last event of a stream, `number` events having gone before."""
        if shape is Shape.RESPONSE:
            code = self.kind or _OPENAI_TYPES.get(self.status, "InternalServerError")
            error = {
                "type": "error",
                "sequence_number": number,
                "code": code,
                "message": _short(self.message),
                "param": None,
            }
            return b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
        name = b"event: error\n" if shape is Shape.MESSAGE else b""
        return name + b"data: " + self.body(shape) + b"\n\n"

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of a JSON answer with this body, apart from its length."""
        headers = [(b"content-type", b"application/json"), *retry_after(self.status, self.retry_after_s)]
        if self.allow:
            headers.append((b"allow", ", ".join(self.allow).encode()))
        if self.status == HTTPStatus.REQUEST_TIMEOUT:
            headers.append((b"connection", b"close"))  # what still comes of the request is no new one
        return headers


def error_body(body: bytes, status: int, shape: Shape) -> bytes:
    """vLLM's or the framework's error answer as the API that was called specifies it."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict) or "message" not in error:
        return Failure(status, HTTPStatus(status).phrase).body(shape)
    return _body(error, status, shape)


def _body(error: dict[str, Any], status: int, shape: Shape) -> bytes:
    """A status has one type, whoever noticed the error: vLLM puts HTTP's phrase where it knows no better."""
    message = _short(str(error["message"]))
    if shape is not Shape.MESSAGE:
        kind = error.get("type") if status == HTTPStatus.BAD_REQUEST else _OPENAI_TYPES.get(status, error.get("type"))
        return json.dumps({"error": {**error, "message": message, "type": kind}}).encode()
    kind = _ANTHROPIC_TYPES.get(status, "api_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def _short(message: str) -> str:
    """Without the end of a long one: vLLM repeats the value it complains of, whatever its length."""
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "..."


def retry_after(status: int, seconds: float | None) -> list[tuple[bytes, bytes]]:
    """When to come back, where the status asks for it: `Retry-After` in whole seconds, at least one, and exactly.

    Seconds are rounded down: 2 for a wait of 1.5 would be a third too long, and some in line leave before.
    Clients are told not to when that is later than they wait, or when the request took all the time there is.
    """
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return [_NO_RETRY]
    if status not in _RETRYABLE:
        return []
    wait_s = seconds or _DEFAULT_RETRY_AFTER_S
    exact = (b"retry-after-ms", str(max(1, round(1000 * wait_s))).encode())
    headers = [(b"retry-after", str(max(1, int(wait_s))).encode()), exact]
    return [*headers, _NO_RETRY] if wait_s > _LONGEST_PATIENCE_S else headers
