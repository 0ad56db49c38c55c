"""A Ray cluster of two nodes on this machine, and Baton deployed on it: what the `ray` tests run against."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from cluster.runtime.mark import current
from cluster.runtime.reaper import Reaper
from configs.schema import BatonConfig
from tests.support.machines import Machine

BUSY = (
    "baton_legs_in_flight",
    "baton_worker_running",
    "baton_worker_waiting",
    "baton_worker_held",
    "baton_worker_kv_usage",
    "baton_store_pins",
)
"""Metrics that are zero when nothing is going on."""

CONFIGS = Path(__file__).parents[2] / "configs"

NODE = {"num_cpus": 32, "object_store_memory": 80 * 2**20, "include_dashboard": False}
"""Of a Ray node: more CPUs than there are, for workers that mostly wait."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running deployment."""

    url: str
    model: str

    def client(self, timeout_s: float = 300.0) -> httpx.Client:
        """An HTTP client on it."""
        return httpx.Client(base_url=self.url, timeout=timeout_s)

    def complete(self, token_ids: list[int], **sampling: Any) -> dict[str, Any]:
        """One unary completion from token ids; the ids of the answer are in `choices[0].token_ids`."""
        with self.client() as client:
            body = {"model": self.model, "prompt": token_ids, "return_token_ids": True, **sampling}
            answer = client.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

    def metrics(self) -> dict[str, float]:
        """Every sample of `/metrics`, by name with its labels."""
        with self.client() as client:
            text = client.get("/metrics").text
        samples = re.findall(r"^(baton_[^ ]+) ([^ ]+)$", text, flags=re.MULTILINE)
        return {name: float(value) for name, value in samples}

    def metric(self, prefix: str, *labels: str) -> float:
        """The sum of all samples whose name starts with `prefix` and whose labels contain each of `labels`."""
        return sum(v for k, v in self.metrics().items() if k.startswith(prefix) and all(one in k for one in labels))

    async def idle(self, deadline_s: float = 10.0) -> None:
        """Wait until nothing is in flight, held on a device or pinned in a store; fail after `deadline_s`."""
        end = time.monotonic() + deadline_s
        while busy := {name: value for name, value in self.metrics().items() if name.startswith(BUSY) and value}:
            assert time.monotonic() < end, busy
            await asyncio.sleep(0.05)


def free_port() -> int:
    """A TCP port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def config_of(preset: str, **changes: Any) -> BatonConfig:
    """A preset's `args` with some sections replaced or merged."""
    args = yaml.safe_load((CONFIGS / preset).read_text())["applications"][0]["args"]
    for key, value in changes.items():
        args[key] = {**args.get(key, {}), **value} if isinstance(value, dict) else value
    return BatonConfig.model_validate(args)


def plain_answers(model: str, requests: list[dict[str, Any]], engine_args: dict[str, Any]) -> list[dict[str, Any]]:
    """What a plain vLLM engine answers to each request, one at a time, in a process of its own."""
    command = [sys.executable, "-m", "tests.support.plain_engine", model, json.dumps(engine_args)]
    text = "".join(json.dumps(one) + "\n" for one in requests)
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(
            command, input=text, stdout=subprocess.PIPE, stderr=log, text=True, timeout=600, cwd=CONFIGS.parent
        )
        log.seek(0)
        assert done.returncode == 0, log.read()[-4000:]
    marked = [line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert len(marked) == len(requests)
    return [json.loads(line) for line in marked]


class TestCluster:
    """Two Ray nodes, labelled `node: a` (head) and `node: b`, with Serve on a free port. `join` adds more."""

    __test__ = False

    def __init__(self, port: int, ray_cluster: Any) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._ray_cluster = ray_cluster

    def join(self, name: str, labels: dict[str, str], **has: Any) -> Machine:
        """Another node, labelled `node: name` as well. What it has is said by Ray's names."""
        told = {"labels": {"node": name, **labels}, **has}
        return Machine(self._ray_cluster, self._ray_cluster.add_node(**NODE, **told))

    @contextmanager
    def deploy(self, application: dict[str, Any]) -> Iterator[Served]:
        """Deploy an entry of a serve file's `applications` as `serve deploy` does, wait until it answers, and take it
        down again.
        """
        from ray import serve

        try:
            self.redeploy(application)
            served = Served(self.url, BatonConfig.model_validate(application["args"]).model.name)
            self.await_ready(served)
            yield served
        finally:
            serve.delete(application["name"])

    @staticmethod
    def redeploy(application: dict[str, Any]) -> None:
        """Deploy it, or what of it has changed, and return when it is done."""
        from ray.serve.context import _get_global_client
        from ray.serve.schema import ServeDeploySchema

        schema = ServeDeploySchema.model_validate({"applications": [application]})
        _get_global_client().deploy_apps(schema, _blocking=True)

    @contextmanager
    def serve(self, config: BatonConfig) -> Iterator[Served]:
        """Deploy, wait until it answers, and take it down again."""
        from ray import serve

        from cluster.app import APPLICATION, build

        serve.run(build(config), name=APPLICATION, route_prefix="/")
        try:
            served = Served(self.url, config.model.name)
            self.await_ready(served)
            yield served
        finally:
            serve.delete(APPLICATION)

    @staticmethod
    def await_ready(served: Served, deadline_s: float = 60.0) -> None:
        """Return when a gateway can answer; fails after the deadline."""
        end = time.monotonic() + deadline_s
        with served.client(5.0) as client:
            while True:
                try:
                    if client.get("/health").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                assert time.monotonic() < end, "the gateway did not become healthy"
                time.sleep(0.2)


@contextmanager
def two_nodes(flags: dict[str, str]) -> Iterator[TestCluster]:
    """A cluster of two nodes in a private temporary directory. `flags` mark its processes as a run of this one's."""
    reaper = Reaper(current())
    try:
        with tempfile.TemporaryDirectory(prefix="b") as folder:
            os.environ.update({**flags, "RAY_TMPDIR": folder})
            yield from _two_nodes()
    finally:
        reaper.close()


def _two_nodes() -> Iterator[TestCluster]:
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "labels": {"node": "a"}})
    try:
        cluster.add_node(**NODE, labels={"node": "b"})
        cluster.connect(namespace="baton")
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
        yield TestCluster(port, cluster)
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()
