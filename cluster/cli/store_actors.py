"""Finds the stores of a Ray cluster: each is a named actor. This process is a driver of that Ray already.

Raises `NothingRuns` where there is no store, or none that is meant.
"""

import asyncio
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from cluster.cli.stores import InspectedStore, NamedStore
from cluster.runtime.ticket import NothingRuns
from cluster.workers.store_actor import NAMESPACE, PREFIX, StoreEndpoint
from kvtransfer.inspection import Dropped, SlotPage, StoreStatistics, Verified

ANSWER_S = 20.0


class StoreLeft(NothingRuns):
    """The store's actor has ended, as one does whose workers have gone, or its node has just failed."""


class FarStore:
    """A store, asked through its actor. Raises `NothingRuns` when it does not answer in time."""

    def __init__(self, name: str, actor: Any) -> None:
        self._name = name
        self._actor = actor

    async def endpoint(self) -> StoreEndpoint:
        found: StoreEndpoint = await self._answer(self._actor.endpoint.remote())
        return found

    async def statistics(self) -> StoreStatistics:
        found: StoreStatistics = await self._answer(self._actor.statistics.remote())
        return found

    async def slots(self, first_slot: int) -> SlotPage:
        found: SlotPage = await self._answer(self._actor.slots.remote(first_slot))
        return found

    async def drop(self, keys: list[bytes]) -> Dropped:
        found: Dropped = await self._answer(self._actor.drop.remote(keys))
        return found

    async def verify(self, first_slot: int) -> Verified:
        found: Verified = await self._answer(self._actor.verify.remote(first_slot))
        return found

    async def _answer(self, reference: Any) -> Any:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await reference
        except TimeoutError:
            raise NothingRuns(f"the KV store {self._name} does not answer within {ANSWER_S:g} s") from None
        except RayActorError:
            raise StoreLeft(f"the KV store {self._name} has just left, or its node has failed") from None
        except RayError as error:
            raise NothingRuns(f"the KV store {self._name} does not answer: {error}") from error


async def find_stores(node: str | None) -> list[NamedStore]:
    """All of them, or those of one node: how its id begins, or its host."""
    found = [await _named(name) for name in sorted(_names())]
    stores = [each for each in found if each is not None]
    if not stores:
        raise NothingRuns("no KV store runs on that Ray cluster: is an application of Baton deployed?")
    meant = [each for each in stores if node is None or _is_on(each, node)]
    if not meant:
        nodes = ", ".join(f"{each.node} ({each.address})" for each in stores)
        raise NothingRuns(f"no KV store runs on node {node!r}; there are: {nodes}")
    return meant


def _names() -> list[str]:
    actors: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in actors if each["namespace"] == NAMESPACE and each["name"].startswith(PREFIX)]


async def _named(name: str) -> NamedStore | None:
    """None where it leaves in this moment: that of an older deployment, or of a node that fails."""
    try:
        far = FarStore(name, await asyncio.to_thread(ray.get_actor, name, NAMESPACE))
        address = (await far.endpoint()).address
    except (ValueError, StoreLeft):  # Ray knows the name no more, or nobody is there
        return None
    store: InspectedStore = far
    return NamedStore(name.removeprefix(PREFIX).split("-")[1], address, store)


def _is_on(named: NamedStore, node: str) -> bool:
    host = named.address.partition("://")[2].rpartition(":")[0].strip("[]")
    return node == host or named.node.startswith(node[: len(named.node)])
