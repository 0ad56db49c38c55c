"""Our gateway without Serve: the app in plain uvicorn, its fake workers in a process of their own.

What this and the gateway in Serve differ by is what Serve costs.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import uvloop

from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.dataplane.link import PoolSettings
from cluster.dataplane.pool import WorkerPool
from cluster.errors import BatonError
from cluster.gateway.app import build_gateway_app
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.settings import GatewaySettings
from cluster.models.identity import model_digest
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from tests.benchmarks.targets.fake_workers import SECRET
from tests.benchmarks.targets.process import TargetProcess
from tests.benchmarks.targets.web import AnnouncingServer

NAME = "baton-app"
MODEL_NAME = "m"
MAX_BODY_BYTES = 32 * 1024 * 1024
READY_DEADLINE_S = 20.0
WORKERS_DEADLINE_S = 30.0


def coordinator(pool: WorkerPool, metrics: GatewayMetrics) -> Coordinator:
    """As the gateway deployment wires it, with its default settings."""
    ledger = Ledger()
    router = LeastWork(LeastWorkSettings(), ledger)
    return Coordinator(pool, router, ledger, time.monotonic, random.Random(), CoordinatorSettings(), metrics)


async def wait_until_healthy(backend: Coordinator, pool: WorkerPool) -> None:
    """Return when the fleet can answer. Raises with what each link says after a while."""
    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        try:
            return await backend.check_health()
        except BatonError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no worker is ready: {pool.statistics()}") from error
            await asyncio.sleep(0.05)


async def serve(model: str, port: int, addresses: dict[str, str]) -> None:
    """The gateway on a port, over workers that are up."""
    metrics = GatewayMetrics()
    async with WorkerPool(PoolSettings("bench", SECRET, model_digest(model))) as pool:
        pool.update(addresses)
        backend = coordinator(pool, metrics)
        app = await build_gateway_app(GatewaySettings(model, MODEL_NAME, MAX_BODY_BYTES), backend, metrics)
        await wait_until_healthy(backend, pool)
        await AnnouncingServer(NAME, app, port).serve()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again when it has shut down
    with tempfile.TemporaryDirectory(prefix="fake-workers-") as logs:
        arguments = ["--model", options.model, "--step-s", str(options.step_s)]
        workers = TargetProcess("tests.benchmarks.targets.fake_workers", arguments, Path(logs) / "log")
        try:
            up = workers.wait_until_up(WORKERS_DEADLINE_S)
            addresses = {str(key): str(value) for key, value in dict(up.extra["addresses"]).items()}  # type: ignore[call-overload]  # JSON
            with suppress(KeyboardInterrupt):
                uvloop.run(serve(options.model, options.port, addresses))
        finally:
            workers.stop()


if __name__ == "__main__":
    main()
