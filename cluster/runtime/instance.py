"""The Ray that a `baton serve` runs on: a private one that lives and dies with this process, or one that is joined.

The only file of the command line that talks to Ray. `RAY_SERVE_*` are read when ray is imported, so ray is imported
here, inside the functions, after the environment is set.
"""

import logging
import math
import os
from collections.abc import Mapping
from typing import Any, Protocol

from cluster.runtime.flags import serve_flags
from cluster.runtime.folders import make_run_folder
from cluster.runtime.mark import RunMark
from cluster.runtime.ticket import Ticket, leave_ticket
from configs.load import Deployment
from configs.schema import BatonConfig

ESSENTIAL = ("gcs_server", "raylet")
OBJECT_STORE_BYTES = 100 * 2**20
DETAILS_TIMEOUT_S = 20.0


class InstanceUnreachable(Exception):
    """Ray or Serve's controller is gone or does not answer in time."""


class InstanceLost(Exception):
    """A process of Ray itself has died: nothing brings it back."""


class OthersDeployed(Exception):
    """Deploying would take other applications away."""


class Instance(Protocol):
    """A Ray to deploy on."""

    def start(self, deployment: Deployment) -> None:
        """Have Ray and Serve run, and this process connected to them."""
        ...

    def check(self) -> None:
        """Raise `InstanceLost` where a Ray that `start` brought cannot go on."""
        ...

    def end(self, deployment: Deployment) -> None:
        """Take away the application and whatever `start` brought. May take as long as live streams drain."""
        ...


class PrivateInstance:
    """Ray on this machine alone, with all its files in the run's folder."""

    def __init__(self, mark: RunMark) -> None:
        self._mark = mark

    def start(self, deployment: Deployment) -> None:
        os.environ.update(serve_flags(self._mark))
        import ray
        from ray import serve

        ray.init(
            num_cpus=max(required_cpus(deployment.config), os.cpu_count() or 1),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level="error",
            namespace="baton",
            _temp_dir=str(make_run_folder(self._mark) / "r"),
        )
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(http_options=deployment.http.model_dump(), proxy_location="HeadOnly")
        address = ray.get_runtime_context().gcs_address
        leave_ticket(self._mark, Ticket(address, os.environ.get("RAY_AUTH_TOKEN")))

    def check(self) -> None:
        import ray._private.worker

        node = ray._private.worker._global_node
        dead = [kind for kind, _ in node.dead_processes() if kind in ESSENTIAL] if node is not None else []
        if dead:
            raise InstanceLost(f"Ray's {' and '.join(dead)} died; nothing can be served without it")

    def end(self, deployment: Deployment) -> None:
        import ray
        from ray import serve

        serve.shutdown()
        ray.shutdown()


class JoinedInstance:
    """A Ray cluster that others started: its environment, ports and Serve instance are its own."""

    def __init__(self, address: str) -> None:
        self._address = address

    def start(self, deployment: Deployment) -> None:
        import ray
        from ray import serve

        ray.init(address=self._address, log_to_driver=False, logging_level="error", namespace="baton")
        serve.start(http_options=deployment.http.model_dump())

    def check(self) -> None:
        """Whether that Ray lives is for others to watch; Serve's silence is noticed anyway."""

    def end(self, deployment: Deployment) -> None:
        import ray
        from ray import serve

        serve.delete(deployment.name)
        ray.shutdown()


def required_cpus(config: BatonConfig) -> int:
    """CPUs that the replicas ask Ray for at most; a machine with fewer shares its own among them."""
    gateways = config.gateway.replicas * config.gateway.num_cpus
    return math.ceil(gateways + sum(pool.most * pool.num_cpus for pool in (config.prefill, config.decode)))


def deploy(deployment: Deployment) -> None:
    """Ask Serve for the application; returns before any replica is up."""
    if deployment.config.scales:
        _deploy_as_file(deployment)
        return
    from ray import serve

    from cluster.app import build

    target = serve.RunTarget(
        target=build(deployment.config), name=deployment.name, route_prefix=deployment.route_prefix
    )
    serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)


def _deploy_as_file(deployment: Deployment) -> None:
    """As `serve deploy` does with the file: Serve takes a policy for a whole application in no other way.

    Serve then takes away what came from files before; raises `OthersDeployed` where that is not this application.
    """
    from ray.serve.context import _get_global_client
    from ray.serve.schema import APIType, ServeDeploySchema

    others = [
        name
        for name, found in details()["applications"].items()
        if name != deployment.name and found["source"] == APIType.DECLARATIVE
    ]
    if others:
        raise OthersDeployed(
            f"{', '.join(others)} came from a file of `serve deploy`, and a deployment that scales would replace it: "
            f"add {deployment.name} to that file, or leave max_replicas out"
        )
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [deployment.application()]}))


def details() -> Mapping[str, Any]:
    """What Serve's controller says of everything it runs. Raises `InstanceUnreachable`."""
    import ray
    from ray.serve.context import _get_global_client

    try:
        controller = _get_global_client()._controller
        answer: Mapping[str, Any] = ray.get(controller.get_serve_instance_details.remote(), timeout=DETAILS_TIMEOUT_S)
    except (ray.exceptions.RayError, ray.serve.exceptions.RayServeException) as error:
        raise InstanceUnreachable(f"Serve's controller does not answer: {error}") from error
    return answer
