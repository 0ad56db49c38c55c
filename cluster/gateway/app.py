"""Builds a gateway: vLLM's own API app over a `Backend`, without an engine and without weights."""

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app

from cluster.gateway import hot_route, tokenising, writers
from cluster.gateway.arguments import server_arguments
from cluster.gateway.asgi import GatewayApplication
from cluster.gateway.asgi_types import Application
from cluster.gateway.backend import Backend
from cluster.gateway.engine_client import ClusterClient
from cluster.gateway.operations import Exposition, Operations
from cluster.gateway.route_header import RouteHeader
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.trim import trim
from cluster.gateway.validation import blame_the_client, blame_the_prompt

_TASKS = ("generate",)


async def build_gateway_app(settings: GatewaySettings, backend: Backend, metrics: Exposition) -> Application:
    """An ASGI application that serves `settings.model_path` from `backend`. Takes a second or so.

    Raises InvalidArgument for an entry of `api_args` that vLLM does not take.
    """
    args = server_arguments(settings)
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    args.model = settings.served_name  # from here on it is only what `/v1/models` calls the root: no place on our disk
    client = ClusterClient(config, backend)
    tokenising.install(client.renderer)
    app = build_app(args, _TASKS, config.model_config)
    await init_app_state(client, app.state, args, _TASKS)
    app.state.server = None  # vLLM's error handlers stop a server whose engine has died; ours is a fleet
    writers.install(app.state)
    trim(app)
    blame_the_client(app)
    hot_route.install(app, app.state)
    blame_the_prompt(app)
    gateway = GatewayApplication(app, Operations(backend, metrics), settings.max_body_bytes, settings.body_s)
    return RouteHeader(gateway, gateway.routes) if settings.explain_header else gateway
