"""Starts a private Ray Serve with both applications and announces three targets.

Our gateway's own port (direct ingress), the same through HAProxy, and the handle stream's own port.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from cluster.runtime.flags import serve_flags
from cluster.runtime.folders import make_run_folder
from cluster.runtime.mark import current
from configs.schema import BatonConfig, ModelConfig, PoolConfig, SimulatedEngineConfig
from configs.security import SecurityConfig
from tests.benchmarks.targets.announce import announce

GATEWAY, HAPROXY, HANDLE = "baton-serve", "baton-haproxy", "serve-handle"
HANDLE_PREFIX = "/handle"
READY_DEADLINE_S = 60.0
MODEL_NAME = "m"


@dataclass(frozen=True, slots=True)
class Replica:
    """An ingress replica: its own HTTP port and its process."""

    port: int
    pid: int


@contextmanager
def private_serve(port: int) -> Iterator[None]:
    """Ray and Serve on the loopback address, ended together with all their files."""
    mark = current()
    os.environ.update(serve_flags(mark))
    import ray
    from ray import serve

    folder = make_run_folder(mark)
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        logging_level="error",
        namespace="baton",
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder / "r"),
    )
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # now, because ray.init puts its own there
        try:
            yield
        finally:
            serve.shutdown()
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def config_of(model: str) -> BatonConfig:
    """One gateway with default settings."""
    pool = PoolConfig(replicas=1, num_cpus=0, engine=SimulatedEngineConfig())
    return BatonConfig(
        model=ModelConfig(path=model, served_name=MODEL_NAME),
        prefill=pool,
        decode=pool,
        security=SecurityConfig(cluster_secret=SecretStr("benchmark-secret-benchmark-secret")),
    )


def ingress(application: str) -> Replica:
    """The one ingress replica of a running application."""
    import ray
    from ray.serve.context import _get_global_client

    controller = _get_global_client()._controller
    groups: list[Any] = ray.get(controller.get_target_groups.remote(application, True))
    ports = [t.port for g in groups if g.protocol.value == "HTTP" for t in g.targets if t.port >= 30_000]
    details = ray.get(controller.get_serve_instance_details.remote())
    deployments = details["applications"][application]["deployments"]
    name = "Gateway" if application == GATEWAY else "HandleStream"
    return Replica(ports[0], deployments[name]["replicas"][0]["pid"])


def wait_until_healthy(port: int) -> None:
    """Return when `/health` of our gateway says that the fleet can answer."""
    import httpx

    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError("the gateway did not become healthy")
        time.sleep(0.2)


def run(model: str, port: int, step_s: float) -> None:
    """Deploy both, announce, and wait to be ended."""
    with private_serve(port):
        from ray import serve

        from tests.benchmarks.targets.serve_apps import gateway_application, handle_application

        serve.run(gateway_application(config_of(model), step_s), name=GATEWAY, route_prefix="/")
        serve.run(handle_application(step_s), name=HANDLE, route_prefix=HANDLE_PREFIX)
        gateway, handle = ingress(GATEWAY), ingress(HANDLE)
        wait_until_healthy(gateway.port)
        announce(GATEWAY, port=gateway.port, pids=[gateway.pid])
        announce(HAPROXY, port=port, pids=[gateway.pid])
        announce(HANDLE, port=handle.port, pids=[handle.pid])
        signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.0)
    options = parser.parse_args()
    run(options.model, options.port, options.step_s)


if __name__ == "__main__":
    main()
