"""Machines for `ray up` that are process groups on this one: a node provider of Ray's external kind.

A machine has a home folder and a temporary folder of its own; copying to it links, as all see one disk. `ray start`
runs in it with `--block`, so that ending its process group ends the machine. What machines there are is kept in a file:
`ray up` and the autoscaler on the head are different processes.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from ray.autoscaler.command_runner import CommandRunnerInterface
from ray.autoscaler.node_provider import NodeProvider

from tests.support.process_groups import end_group

START_S = 120.0

T = TypeVar("T")


class Machines:
    """The file. `{"made": 3, "machines": {"m2": {"tags": {...}, "pid": 17}}}`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "machines.json"
        self._lock = FileLock(folder / "machines.lock")

    def read(self) -> dict[str, Any]:
        """All of it, now."""
        with self._lock:
            return self._load()

    def change(self, change: Callable[[dict[str, Any]], T]) -> T:
        """Apply a change that nobody else's comes between."""
        with self._lock:
            state = self._load()
            result = change(state)
            self._file.write_text(json.dumps(state))
            return result

    def _load(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {"made": 0, "machines": {}}


class Shell(CommandRunnerInterface):
    """Runs commands on one machine."""

    def __init__(self, machines: Machines, folder: Path, machine: str) -> None:
        self._machines = machines
        self._folder = folder / machine
        self._machine = machine

    def run(
        self,
        cmd: str | None = None,
        timeout: float = START_S,
        exit_on_fail: bool = False,
        port_forward: Any = None,
        with_output: bool = False,
        environment_variables: Mapping[str, object] | None = None,
        run_env: str = "auto",
        ssh_options_override_ssh_key: str = "",
        shutdown_after_run: bool = False,
    ) -> str:
        if not cmd:
            return ""
        if "ray stop" in cmd:
            raise ValueError(f"it would end every Ray of this machine: {cmd}")
        environment = self._environment(environment_variables or {})
        if "ray start" in cmd:
            self._start_ray(cmd, environment)
            return ""
        done = subprocess.run(
            ["bash", "-c", cmd], env=environment, capture_output=with_output, timeout=timeout, check=True
        )
        return done.stdout.decode() if with_output else ""

    def _environment(self, more: Mapping[str, object]) -> dict[str, str]:
        told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in more.items()}
        home, temporary = self._folder / "home", self._folder / "t"
        for folder in (home, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        return {**os.environ, "HOME": str(home), "RAY_TMPDIR": str(temporary), **told}

    def _start_ray(self, cmd: str, environment: Mapping[str, str]) -> None:
        log = self._folder / "ray-start.log"
        with log.open("wb") as out:
            started = subprocess.Popen(
                ["bash", "-c", f"{cmd} --block"], env=environment, stdout=out, stderr=out, start_new_session=True
            )
        self._machines.change(lambda state: state["machines"][self._machine].__setitem__("pid", started.pid))
        end = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            if started.poll() is not None or time.monotonic() > end:
                raise subprocess.CalledProcessError(started.poll() or 1, cmd, log.read_text())
            time.sleep(0.1)

    def run_rsync_up(self, source: str, target: str, options: Any = None) -> None:
        there = Path(target.replace("~", str(self._folder / "home"), 1))
        there.parent.mkdir(parents=True, exist_ok=True)
        if there.is_symlink() or there.is_file():
            there.unlink()
        elif there.is_dir():
            there.rmdir()  # made by Ray, and empty
        if os.path.isdir(source):
            there.symlink_to(os.path.abspath(source))
        else:
            shutil.copy(source, there)

    def run_rsync_down(self, source: str, target: str, options: Any = None) -> None:
        raise NotImplementedError("nothing is fetched from a machine")

    def remote_shell_command_str(self) -> str:
        return "bash"

    def run_init(self, *, as_head: bool, file_mounts: Mapping[str, str], sync_run_yet: bool) -> None:
        """There is no container."""


class LocalMachines(NodeProvider):
    """`provider: {type: external, module: tests.support.local_machines.LocalMachines, folder: …, ip: …}`."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._folder = Path(provider_config["folder"])
        self._machines = Machines(self._folder)

    def non_terminated_nodes(self, tag_filters: Mapping[str, str]) -> list[str]:
        machines = self._machines.read()["machines"]
        return [name for name, machine in machines.items() if tag_filters.items() <= machine["tags"].items()]

    def is_running(self, node_id: str) -> bool:
        return node_id in self._machines.read()["machines"]

    def is_terminated(self, node_id: str) -> bool:
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        return dict(self._machines.read()["machines"][node_id]["tags"])

    def set_node_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        self._machines.change(lambda state: state["machines"][node_id]["tags"].update(tags))

    def external_ip(self, node_id: str) -> str:
        return str(self.provider_config["ip"])

    def internal_ip(self, node_id: str) -> str:
        return str(self.provider_config["ip"])

    def create_node(self, node_config: Any, tags: Mapping[str, str], count: int) -> dict[str, Any]:
        def add(state: dict[str, Any]) -> dict[str, Any]:
            names = [f"m{state['made'] + i}" for i in range(count)]
            state["made"] += count
            state["machines"].update({name: {"tags": dict(tags)} for name in names})
            return {name: {} for name in names}

        return self._machines.change(add)

    def terminate_node(self, node_id: str) -> None:
        machine = self._machines.change(lambda state: state["machines"].pop(node_id, {}))
        if "pid" in machine:
            end_group(machine["pid"])

    def get_command_runner(self, log_prefix: str, node_id: str, *args: Any, **kwargs: Any) -> Shell:
        return Shell(self._machines, self._folder, node_id)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        return cluster_config
