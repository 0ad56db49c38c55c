"""Learns which workers exist from Serve's controller, as they come and go.

Serve's own routers listen to the same long poll. A worker replica records its data-plane address once it is ready, so
whoever is listed here can be connected to. Ray's types stay in this file.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ray
from ray.serve._private.common import DeploymentID
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve._private.long_poll import LongPollClient, LongPollNamespace
from ray.serve.handle import DeploymentHandle

from cluster.gateway.roster import Addresses, Roster, addresses


class Discovery:
    """Keeps a roster true until closed. Made on the loop that `changed` is to be called on."""

    def __init__(self, workers: Sequence[DeploymentHandle], changed: Callable[[Addresses], None]) -> None:
        self._roster = Roster(changed)
        controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
        ids = [DeploymentID(name=handle.deployment_name, app_name=handle.app_name) for handle in workers]
        listeners = {(LongPollNamespace.DEPLOYMENT_TARGETS, i): partial(self._targets, i.name) for i in ids}
        self._client = LongPollClient(
            controller,
            listeners,
            call_in_event_loop=asyncio.get_running_loop(),
            client_id=f"baton-gateway:{ray.get_runtime_context().get_actor_id()}",
        )

    @property
    def is_listening(self) -> bool:
        """False once the controller is gone for good: the roster does not change any more."""
        return bool(self._client.is_running)

    def close(self) -> None:
        """Stop listening. The poll in progress ends by itself."""
        self._client.stop()

    def _targets(self, deployment: str, targets: Any) -> None:
        self._roster.replace(deployment, addresses(replica.replica_metadata for replica in targets.running_replicas))
