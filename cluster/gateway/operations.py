"""The gateway's own routes: whether it can answer, and its numbers. They do not pass through vLLM's app."""

import asyncio
import json
from typing import Protocol

from cluster.errors import BatonError
from cluster.gateway.asgi_types import Send
from cluster.gateway.backend import Backend
from cluster.gateway.failures import Failure

_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_JSON = b"application/json"


class Exposition(Protocol):
    """Where the numbers come from."""

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        ...


class Operations:
    """`/health` is 200 exactly when a request could be answered now, `/metrics` is what Prometheus scrapes."""

    def __init__(self, backend: Backend, metrics: Exposition, health_timeout_s: float = 5.0) -> None:
        self._backend = backend
        self._metrics = metrics
        self._health_timeout_s = health_timeout_s

    def serves(self, path: str) -> bool:
        """Whether `path` is one of the gateway's own."""
        return path in ("/health", "/metrics")

    async def answer(self, path: str, send: Send) -> None:
        """Answer a GET of one of the gateway's own routes."""
        if path == "/metrics":
            await _send(send, 200, self._metrics.render(), [(b"content-type", _METRICS_TYPE)])
            return
        failure = await self._ill()
        if failure is None:
            await _send(send, 200, json.dumps({"status": "ok"}).encode(), [(b"content-type", _JSON)])
        else:
            await _send(send, failure.status, failure.body(), failure.headers())

    async def _ill(self) -> Failure | None:
        """Why no request could be answered. Always 503, so that load balancers and Kubernetes understand."""
        try:
            async with asyncio.timeout(self._health_timeout_s):
                await self._backend.check_health()
        except BatonError as error:
            return Failure(503, str(error) or type(error).__name__, error.retry_after_s)
        except TimeoutError:
            return Failure(503, "the health check took too long")
        return None


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
