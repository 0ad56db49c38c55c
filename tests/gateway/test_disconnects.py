"""A client that goes away takes its generation with it, over real sockets and as Serve does it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from tests.fakes.backend import Script
from tests.gateway.requests import CHAT, COMPLETIONS, MESSAGES, RESPONSES, chat, completion, message, response

CLOSED_WITHIN_S = 0.1
BODIES = {CHAT: chat(), COMPLETIONS: completion(), RESPONSES: response(), MESSAGES: message()}
WHEN = {"before the first token": 0, "in mid-stream": 2}


class ReportingServer(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@pytest.fixture
async def server(plain_app, backend) -> AsyncIterator[uvicorn.Server]:
    config = uvicorn.Config(plain_app, host="127.0.0.1", port=0, lifespan="off", log_level="critical")
    server = ReportingServer(config)
    serving = asyncio.create_task(server.serve(), name="uvicorn")
    try:
        async with asyncio.timeout(10):
            await server.listening.wait()
        yield server
    finally:
        server.should_exit = True
        await serving


def address(server: uvicorn.Server) -> tuple[str, int]:
    return server.servers[0].sockets[0].getsockname()[:2]


async def send(writer: asyncio.StreamWriter, path: str, body: dict) -> None:
    payload = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    writer.write(head.encode() + payload)
    await writer.drain()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("before", WHEN.values(), ids=WHEN)
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
async def test_a_lost_connection_ends_the_generation(server, backend, path, before, stream):
    backend.script = lambda _: Script(gate=asyncio.Event(), gate_before=before)
    reader, writer = await asyncio.open_connection(*address(server))
    await send(writer, path, {**BODIES[path], "stream": stream})
    async with asyncio.timeout(5):
        await backend.started.wait()
        if stream and before:
            await reader.readuntil(b"Hello")
    writer.transport.abort()
    async with asyncio.timeout(CLOSED_WITHIN_S):
        await backend.idle.wait()
    assert backend.open == set()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("before", WHEN.values(), ids=WHEN)
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
async def test_cancelling_the_application_ends_the_generation(plain_app, backend, path, before, stream):
    """Serve does not send `http.disconnect`: it cancels the application."""
    backend.script = lambda _: Script(gate=asyncio.Event(), gate_before=before)
    running = asyncio.create_task(call(plain_app, path, {**BODIES[path], "stream": stream}))
    async with asyncio.timeout(5):
        await backend.started.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    async with asyncio.timeout(CLOSED_WITHIN_S):
        await backend.idle.wait()
    assert backend.open == set()


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
async def test_cancelling_the_application_ends_the_generation_of_every_prompt(plain_app, backend, stream):
    backend.script = lambda _: Script(gate=asyncio.Event(), gate_before=1)
    running = asyncio.create_task(call(plain_app, COMPLETIONS, completion(prompt=["a", "b", "c"], stream=stream)))
    async with asyncio.timeout(5):
        await backend.opened(3)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    async with asyncio.timeout(CLOSED_WITHIN_S):
        await backend.idle.wait()
    assert backend.open == set()


async def call(app, path: str, body: dict) -> None:
    """One request whose client stays connected and reads everything."""
    payload = json.dumps(body).encode()
    unread = [payload]

    async def receive():
        if not unread:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": unread.pop()}

    async def ignore(_):
        pass

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, ignore)


async def test_connections_send_at_once(server, backend):
    """Without TCP_NODELAY a kept-alive connection waits 40 ms for each acknowledgement."""
    reader, writer = await asyncio.open_connection(*address(server))
    for _ in range(2):
        await send(writer, CHAT, chat())
        async with asyncio.timeout(5):
            await reader.readuntil(b"Hello, world!")
    (connection,) = server.server_state.connections
    kept = connection.transport.get_extra_info("socket")
    assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    writer.close()
    await writer.wait_closed()
