"""The outermost ASGI application of a gateway: what reaches vLLM's app, and what comes back.

In: only open routes and methods, a body no longer than allowed and in time, no headers by which a client would choose
its own priority or replica. Back: `cluster.gateway.reply`. However a request ends, everything it opened is closed;
Serve cancels this coroutine when a client goes away and nothing else.
"""

import logging
from http import HTTPStatus
from math import inf
from typing import Any

from cluster.gateway.asgi_types import Application, Headers, Receive, Scope, Send
from cluster.gateway.body import (
    MOST_PIECES,
    MOST_PIECES_OF_A_RESPONSE,
    TOO_LARGE,
    BodyRefused,
    BoundedBody,
    declared_bytes,
)
from cluster.gateway.failures import Failure
from cluster.gateway.operations import Operations
from cluster.gateway.reply import Reply
from cluster.gateway.routes import Route, Shape, find
from cluster.gateway.scope import RequestScope, current_scope

_log = logging.getLogger(__name__)
_WITHHELD = frozenset({b"x-vllm-priority", b"x-data-parallel-rank"})
_NORMAL_CLOSURE = 1000

DEADLINE = b"x-baton-first-token-s"
"""In so many seconds a client wants its first token, or to be refused at once."""


class GatewayApplication:
    """vLLM's app, guarded. `routes` is what Serve asks for to label its metrics."""

    def __init__(self, app: Any, operations: Operations, max_body_bytes: int, body_s: float) -> None:
        self._app: Application = app
        self._operations = operations
        self._max_body_bytes = max_body_bytes
        self._body_s = body_s
        self.routes = app.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _NORMAL_CLOSURE})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        route = find(path)
        request = RequestScope()
        shape = route.shape if route else Shape.OTHER
        most_pieces = MOST_PIECES_OF_A_RESPONSE if shape is Shape.RESPONSE else MOST_PIECES
        body = BoundedBody(receive, self._max_body_bytes, self._body_s, most_pieces)
        reply = Reply(send, request, body, shape)
        refusal = self._refusal(route, scope) or _take_deadline(scope["headers"], request)
        if refusal is not None:
            await reply.fail(refusal)
        elif self._operations.serves(path):
            await self._operations.answer(path, send)
        else:
            inner = {**scope, "headers": _admitted(scope["headers"])}
            await self._serve(inner, body, reply, request)

    def _refusal(self, route: Route | None, scope: Scope) -> Failure | None:
        """Why the request does not reach vLLM's app at all."""
        if route is None:
            return Failure(HTTPStatus.NOT_FOUND, f"there is no route {scope['path']}")
        if scope["method"] not in route.methods:
            return Failure(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{scope['method']} is not allowed here",
                allow=tuple(sorted(route.methods)),
            )
        declared = declared_bytes(scope["headers"])
        if declared is not None and declared > self._max_body_bytes:
            return TOO_LARGE
        return None

    async def _serve(self, scope: Scope, body: BoundedBody, reply: Reply, request: RequestScope) -> None:
        """One request through vLLM's app, in a scope of its own that is closed at the end."""
        token = current_scope.set(request)
        try:
            await self._app(scope, body, reply)
        except BodyRefused:
            if not reply.started and body.refusal is not None:
                await reply.fail(body.refusal)
        except Exception as error:
            # A failure that is already known broke vLLM's own reporting of it.
            _log.log(logging.INFO if request.failure else logging.ERROR, "%s failed", scope["path"], exc_info=error)
            await reply.abandon(request.failure or Failure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error"))
        finally:
            current_scope.reset(token)
            await request.close()


def _take_deadline(headers: Headers, request: RequestScope) -> Failure | None:
    """Note how long the client waits for its first token. What it says must be a number of seconds."""
    for name, value in headers:
        if name == DEADLINE:
            seconds = _seconds(value)
            if seconds is None:
                return Failure(HTTPStatus.BAD_REQUEST, f"{DEADLINE.decode()} has to be a number of seconds above 0")
            request.first_token_s = seconds
    return None


def _seconds(value: bytes) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 < seconds < inf else None


def _admitted(headers: Headers) -> Headers:
    return [header for header in headers if header[0] not in _WITHHELD]
