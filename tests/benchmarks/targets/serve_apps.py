"""The two Serve applications: our gateway over fake workers, and a token stream through a Serve handle.

Imported by replicas; the process that starts Serve is `serve_targets`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.serve.handle import DeploymentHandle

from cluster.app import gateway_options
from cluster.dataplane.frames import Role
from cluster.gateway.deployment import Gateway
from cluster.gateway.roster import METADATA_KEY
from configs.schema import BatonConfig
from tests.benchmarks.fake_engine import TOKEN_TEXT, FakeEngine
from tests.benchmarks.targets.fake_workers import ROLES, FakeWorker

MAX_ONGOING_REQUESTS = 4096


class FakeWorkerReplica:
    """A fake worker where a real one would be: gateways learn of it from Serve and connect to it."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, role: Role, model: str, secret: bytes, step_s: float
    ) -> None:
        self._worker = FakeWorker(role, model, secret, step_s)
        self._address = await self._worker.listen()
        self._serving = asyncio.get_running_loop().create_task(self._worker.serve())

    async def record_replica_metadata(self) -> dict[str, dict[str, str]]:
        """Where gateways find it."""
        return {METADATA_KEY: {"replica_id": self._worker.info.replica_id, "address": self._address}}

    async def __del__(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)


def gateway_application(config: BatonConfig, step_s: float) -> serve.Application:
    """The real gateway deployment, bound to fake workers as `cluster.app.build` binds it to real ones."""
    secret = config.security.cluster_secret
    assert secret is not None
    workers = {
        role: serve.deployment(FakeWorkerReplica)
        .options(name=f"Fake{role.capitalize()}", ray_actor_options={"num_cpus": 0})
        .bind(role, config.model.path, secret.get_secret_value().encode(), step_s)
        for role in ROLES
    }
    return serve.deployment(Gateway).options(name="Gateway", **gateway_options(config)).bind(config, workers)


class TokenSource:
    """The fake engine behind a Serve handle: one streamed item for each token."""

    async def __init__(self, step_s: float) -> None:  # type: ignore[misc]  # Serve awaits it
        self._engine = FakeEngine(step_s)
        self._stepping = asyncio.get_running_loop().create_task(self._engine.serve())

    async def stream(self, tokens: int) -> AsyncIterator[str]:
        """The text of each token as it is made."""
        made: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()
        run = self._engine.start(tokens, lambda count, last: made.put_nowait((count, last)))
        try:
            last = False
            while not last:
                count, last = await made.get()
                for _ in range(count):
                    yield TOKEN_TEXT
        finally:
            self._engine.cancel(run)


class Completion(BaseModel):
    """What a completion request asks for, as far as this application cares."""

    model_config = ConfigDict(extra="ignore")
    prompt: str
    max_tokens: int = 16
    stream: bool = False


api = FastAPI()


@serve.ingress(api)
class HandleStream:
    """A FastAPI ingress whose tokens come through a handle: no tokenising, no validation, one event a token."""

    def __init__(self, source: DeploymentHandle) -> None:
        self._source = source.options(stream=True)

    @api.post("/v1/completions")
    async def complete(self, request: Completion) -> Response:
        """Server-sent events, or everything at once."""
        tokens = self._source.stream.remote(request.max_tokens)
        if request.stream:
            return StreamingResponse(self._events(tokens), media_type="text/event-stream")
        text = "".join([token async for token in tokens])
        return JSONResponse({"choices": [{"index": 0, "text": text}]})

    @api.get("/pid")
    async def pid(self) -> int:
        """The ingress replica's process."""
        return os.getpid()

    async def _events(self, tokens: AsyncIterator[str]) -> AsyncIterator[str]:
        async for token in tokens:
            yield f"data: {json.dumps({'choices': [{'index': 0, 'text': token}]})}\n\n"
        yield "data: [DONE]\n\n"


def handle_application(step_s: float) -> serve.Application:
    """The ingress and the token source behind it."""
    options = {"ray_actor_options": {"num_cpus": 0}, "max_ongoing_requests": MAX_ONGOING_REQUESTS}
    source = serve.deployment(TokenSource).options(name="TokenSource", **options).bind(step_s)
    return serve.deployment(HandleStream).options(name="HandleStream", **options).bind(source)
