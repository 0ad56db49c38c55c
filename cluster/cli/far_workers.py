"""The workers of everything that Serve runs on a Ray cluster, asked through Serve. This process is a driver of it.

Serve finds a replica by itself or asks all: a question to one worker goes to all of its deployment, and the others
pass it by.
"""

import logging
from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from cluster.cli.out_of_service import WorkerView
from cluster.cli.replicas import last_line
from cluster.cli.roles import RoleView
from cluster.dataplane.frames import Role
from cluster.runtime.ticket import NothingRuns

DEPLOYMENTS = ("PrefillWorker", "DecodeWorker")
ANSWER_S = 20.0


class FarWorkers:
    """Implements `cluster.cli.out_of_service.Workers`. Raises `NothingRuns` when workers do not answer in time."""

    def __init__(self) -> None:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        self._pools = _pools()

    def views(self) -> Sequence[WorkerView]:
        """See the seam."""
        found = [status for pool in self._pools for status in _ask(pool, "status")]
        return [WorkerView(**{name: status[name] for name in WorkerView.__slots__}) for status in found]

    def drain(self, replica_id: str, finish_s: float | None) -> None:
        """See the seam."""
        for pool in self._pools:
            _ask(pool, "drain", replica_id, finish_s)

    def undrain(self, replica_id: str) -> None:
        """See the seam."""
        for pool in self._pools:
            _ask(pool, "undrain", replica_id)


class FarRoles:
    """Implements `cluster.cli.roles.LendableWorkers`. Raises `NothingRuns` when workers do not answer in time."""

    def __init__(self) -> None:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        self._pools = _pools()

    def views(self) -> Sequence[RoleView]:
        """See the seam."""
        found = [status for pool in self._pools for status in _ask(pool, "status")]
        return [RoleView(**{name: status[name] for name in RoleView.__slots__}) for status in found]

    def lend(self, replica_id: str, role: Role, pinned: bool, why: str) -> None:
        """See the seam."""
        for pool in self._pools:
            _ask(pool, "lend", replica_id, role, pinned, why)


def _pools() -> list[DeploymentHandle]:
    applications = serve.status().applications
    pools = [
        _handle(name, application)
        for application, status in applications.items()
        for name in DEPLOYMENTS
        if name in status.deployments
    ]
    if not pools:
        raise NothingRuns("no worker of Baton runs on that Ray cluster: is an application deployed?")
    return pools


def _handle(name: str, application: str) -> DeploymentHandle:
    """One that works outside of an event loop, whatever this process's Serve flags are."""
    handle = serve.get_deployment_handle(name, application)
    if not handle.is_initialized:
        handle._init(_run_router_in_separate_loop=True)
    return handle


def _ask(pool: DeploymentHandle, method: str, *args: object) -> list[Any]:
    """What every running replica answers. While a deployment has none, that is nothing."""
    try:
        return list(pool.broadcast(method, *args).results(timeout_s=ANSWER_S))
    except RayServeException:
        return []
    except (RayError, TimeoutError) as error:
        raise NothingRuns(f"{pool.deployment_name} does not answer: {last_line(str(error))}") from error
