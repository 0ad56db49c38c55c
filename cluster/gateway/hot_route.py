"""The two busiest routes past FastAPI: the same request models, the same handlers, the same answers.

For each request FastAPI resolves dependencies, opens three stacks and starts two tasks. Here a body that is plainly
JSON and passes the route's own model goes to vLLM's handler at once. Every other request is FastAPI's, with its body,
so that each refusal is the one it has always been. Middlewares and error handlers stay around both.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException, Request
from starlette.responses import JSONResponse, StreamingResponse
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.sse_keep_alive import with_sse_keep_alive

from cluster.gateway.asgi_types import Application, Headers, Message, Receive, Scope, Send
from cluster.gateway.body import BodyRefused
from cluster.gateway.scope import RequestScope, current_scope

MOST_BYTES = 1024 * 1024  # what is larger is checked once, by FastAPI
_JSON = b"application/json"
_LOAD_REPORT = b"endpoint-load-metrics-format"

Validate = Callable[..., tuple[Any, list[Any]]]
Create = Callable[[Any, Request], Awaitable[Any]]


class HotRoute:
    """Takes the place of FastAPI's application of one route. `create` may answer with bytes, which are the body."""

    def __init__(self, fastapi: Application, validate: Validate, create: Create, keep_alive_s: float) -> None:
        self._fastapi = fastapi
        self._validate = validate
        self._create = create
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Raises what FastAPI would raise."""
        body = await _whole_body(receive)
        request = self._plain(scope["headers"], body)
        around = current_scope.get()
        if request is None or around is None:
            await self._fastapi(scope, _again(body, receive), send)
            return
        around.takes_bytes = True
        answer = await _until_gone(self._create(request, Request(scope, receive)), receive, around)
        if isinstance(answer, bytes):
            await _send_json(send, answer)
        else:
            await self._response(answer)(scope, receive, send)

    def _plain(self, headers: Headers, body: bytes) -> Any:
        """The request, None when FastAPI is to look at it."""
        if len(body) > MOST_BYTES or not _is_json(headers):
            return None
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return None
        request, errors = self._validate(value, {}, loc=("body",))
        return None if errors else request

    def _response(self, answer: Any) -> Any:
        """As vLLM's routes answer."""
        if isinstance(answer, ErrorResponse):
            return JSONResponse(answer.model_dump(), answer.error.code)
        if hasattr(answer, "model_dump"):
            return JSONResponse(answer.model_dump())
        return StreamingResponse(with_sse_keep_alive(answer, self._keep_alive_s), media_type="text/event-stream")


def install(app: Any, state: Any) -> None:
    """Put the hot routes into vLLM's `app`. It has not served a request yet."""
    handlers: dict[str, Create] = {
        "/v1/chat/completions": state.openai_serving_chat.create_chat_completion,
        "/v1/completions": state.openai_serving_completion.create_completion,
    }
    if state.args.enable_server_load_tracking:
        return  # counted by what FastAPI calls
    for route in app.router.routes:
        create = handlers.get(route.path)
        if create is not None:
            (field,) = route.dependant.body_params
            route.app = HotRoute(route.app, field.validate, create, float(state.args.sse_keep_alive_interval))


def _is_json(headers: Headers) -> bool:
    """Whether the body is said to be JSON and nothing is asked for that only vLLM's route knows."""
    said = False
    for name, value in headers:
        if name == b"content-type":
            said = value.split(b";", 1)[0] == _JSON
        elif name == _LOAD_REPORT:
            return False
    return said


async def _whole_body(receive: Receive) -> bytes:
    parts = []
    more = True
    while more:
        try:
            message = await receive()
        except BodyRefused as error:
            raise HTTPException(400, str(error)) from error
        if message["type"] != "http.request":
            raise HTTPException(400, "the client left")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that begins with the body."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def _until_gone(work: Awaitable[Any], receive: Receive, around: RequestScope) -> Any:
    """What `work` returns; everything it has opened ends when the client goes away.

    Raises CancelledError when this task was cancelled from outside: vLLM's handlers make an answer of that.
    """
    task = asyncio.current_task()
    assert task is not None
    watch = asyncio.create_task(_close_when_gone(receive, around))
    try:
        result = await work
    finally:
        watch.cancel()
        await asyncio.wait([watch])
    if task.cancelling() and not around.closed:
        raise asyncio.CancelledError
    return result


async def _close_when_gone(receive: Receive, around: RequestScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    await around.close()


async def _send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", _JSON)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
