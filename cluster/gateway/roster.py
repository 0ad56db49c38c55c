"""Which workers exist, from what Serve says of each deployment. Values in, values out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Addresses = Mapping[str, str]
METADATA_KEY = "baton"


class Roster:
    """The workers of all deployments, by replica id. Calls `changed` with all of them whenever one list changes."""

    def __init__(self, changed: Callable[[Addresses], None]) -> None:
        self._changed = changed
        self._by_deployment: dict[str, dict[str, str]] = {}

    def replace(self, deployment: str, workers: Mapping[str, str]) -> None:
        """The replicas of one deployment are now `workers`."""
        if self._by_deployment.get(deployment) == workers:
            return
        self._by_deployment[deployment] = dict(workers)
        everyone: dict[str, str] = {}
        for part in self._by_deployment.values():
            everyone |= part
        self._changed(everyone)


def addresses(metadata: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Replica id to `host:port` of those replicas that have said where they listen."""
    entries = (each.get(METADATA_KEY) for each in metadata)
    return {entry["replica_id"]: entry["address"] for entry in entries if entry}
