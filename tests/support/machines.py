"""A Ray node of a test cluster that can be lost: it and all that runs on it, at once, as when a machine fails."""

from contextlib import suppress
from typing import Any

import psutil


class Machine:
    """Made by `TestCluster.join`. A machine that `die`d or was `remove`d is no more."""

    def __init__(self, ray_cluster: Any, node: Any) -> None:
        self._ray_cluster = ray_cluster
        self._node = node
        self._is_there = True

    @property
    def node_id(self) -> str:
        """Ray's."""
        return str(self._node.node_id)

    def die(self) -> None:
        """SIGKILL of its raylet and of every process below it, before any of them can say goodbye."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.remove()

    def remove(self) -> None:
        """Take it out of the cluster's books and end what still runs."""
        if self._is_there:
            self._is_there = False
            self._ray_cluster.remove_node(self._node, allow_graceful=False)

    def _processes(self) -> list[psutil.Process]:
        """The raylet's first: it would tell Ray's head of the others' end."""
        started = [info.process.pid for infos in self._node.all_processes.values() for info in infos]
        found = [process for pid in started for process in (psutil.Process(pid), *_below(pid))]
        return sorted(found, key=lambda process: process.name() != "raylet")


def _below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)
