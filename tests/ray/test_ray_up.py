"""`ray up`, `baton doctor`, `serve deploy` and `ray down` with the cluster file for AWS; machines are process groups.

What differs from the file: the provider, instance types, resources, ports, and that nothing is installed.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from cluster.models.cache import cache_folder
from cluster.runtime.flags import free_ports
from tests.support.process_groups import end_group
from tests.support.serving import CONFIGS

pytestmark = [pytest.mark.ray, pytest.mark.alone]

BIN = Path(sys.executable).parent
DEADLINE_S = 240.0


@dataclass(frozen=True, slots=True)
class Laptop:
    """Where `ray up` is run: a home folder with the files, and the ports the cluster will have."""

    folder: Path
    gcs_port: int
    dashboard_port: int
    http_port: int

    def run(self, *command: str) -> str:
        """A command's output; fails with it."""
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            env=self.environment(),
            cwd=CONFIGS.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Of a user who runs the tools of this environment."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "BATON_"))}
        return {
            **ours,
            "HOME": str(self.folder / "home"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(CONFIGS.parent),
            "BATON_CACHE": str(cache_folder()),
            "RAY_AUTH_MODE": "token",
        }

    @property
    def cluster_file(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def serve_file(self) -> Path:
        return self.folder / "serve.yaml"


@pytest.fixture
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """Ends whatever machines a failed test leaves."""
    folder = Path("/tmp") / f"up{os.getpid()}"  # short: Ray's sockets lie below it
    (folder / "home").mkdir(parents=True)
    made = Laptop(folder, *free_ports(3))
    made.run("ray", "get-auth-token", "--generate")
    made.cluster_file.write_text(yaml.safe_dump(cluster(made)))
    made.serve_file.write_text(yaml.safe_dump(service(made)))
    try:
        yield made
    finally:
        state = folder / "machines.json"
        machines = json.loads(state.read_text())["machines"] if state.exists() else {}
        for machine in machines.values():
            if "pid" in machine:
                end_group(machine["pid"])
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def cluster(laptop: Laptop) -> dict[str, Any]:
    """The file for AWS, on this machine. The prefill machine is started when a replica asks for it."""
    content = yaml.safe_load((CONFIGS / "ray_up" / "aws.yaml").read_text())
    folder = {"folder": str(laptop.folder), "ip": own_address()}
    content["provider"] = {"type": "external", "module": "tests.support.local_machines.LocalMachines", **folder}
    del content["docker"]
    for key in ("initialization_commands", "head_setup_commands", "worker_setup_commands", "cluster_synced_files"):
        content[key] = []  # Ray's defaults for its own providers
    for kind, machine in content["available_node_types"].items():
        machine.update(node_config={}, resources={"CPU": 2}, min_workers=int(kind == "decode"))
    content["file_mounts"] = {"~/baton": str(CONFIGS.parent), "~/.ray/auth_token": "~/.ray/auth_token"}
    content["setup_commands"] = ["test -f ~/baton/pyproject.toml"]
    for who in ("head_start_ray_commands", "worker_start_ray_commands"):
        content[who] = [
            command.replace("6379", str(laptop.gcs_port))
            .replace(
                "ray start --head",
                f"ray start --head --dashboard-port={laptop.dashboard_port}",
            )
            .replace("1000000000", "80000000")
            for command in content[who]
            if command != "ray stop"  # new machines run no Ray, and it would end others' that are none
        ]
    return content


def own_address() -> str:
    """By which Ray knows this machine: where a packet to the world would leave from. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def service(laptop: Laptop) -> dict[str, Any]:
    """The file for two kinds of machines, with simulated engines."""
    content = yaml.safe_load((CONFIGS / "gpu_mixed.yaml").read_text())
    content["proxy_location"] = "HeadOnly"  # machines here share their ports
    content["http_options"]["port"] = laptop.http_port
    args = content["applications"][0]["args"]
    args["model"] = {"path": "tiny"}
    for pool in ("prefill", "decode"):
        args[pool].update(replicas=1, num_gpus=0, num_cpus=1, engine={"kind": "simulated", "speed": 10})
    args["store"] = {"bytes": "64MiB"}
    args["router"] = {}
    args["gateway"] = {"replicas": 1, "num_cpus": 1}
    return content


@pytest.mark.timeout(600)
def test_a_cluster_goes_up_serves_on_the_machines_that_are_meant_and_goes_down(laptop: Laptop) -> None:
    laptop.run("ray", "up", "-y", "--no-config-cache", str(laptop.cluster_file))
    address = f"{own_address()}:{laptop.gcs_port}"
    laptop.run("serve", "deploy", "-a", f"http://127.0.0.1:{laptop.dashboard_port}", str(laptop.serve_file))
    url = f"http://127.0.0.1:{laptop.http_port}"
    answer = first_answer(url)
    assert answer["usage"]["completion_tokens"] == 4
    doctor = laptop.run("baton", "doctor", str(laptop.serve_file), "--address", address)
    assert "3 nodes, 0 errors" in doctor
    assert {pool for pool in ("head", "prefill", "decode") if f"pool={pool}" in doctor} == {"head", "prefill", "decode"}
    laptop.run("ray", "down", "-y", str(laptop.cluster_file))
    assert json.loads((laptop.folder / "machines.json").read_text())["machines"] == {}
    assert [
        p.pid for p in psutil.process_iter(["cmdline"]) if str(laptop.folder) in " ".join(p.info["cmdline"] or ())
    ] == []


def first_answer(url: str) -> dict[str, Any]:
    """Once machines have come up for the replicas that had no room."""
    body = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 4}
    end = time.monotonic() + DEADLINE_S
    said = "nothing"
    while time.monotonic() < end:
        try:
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=30.0)
            if answer.status_code == 200:
                return dict(answer.json())
            said = answer.text
        except httpx.TransportError as error:
            said = repr(error)
        time.sleep(0.5)
    pytest.fail(f"no answer within {DEADLINE_S:g} s: {said}")
