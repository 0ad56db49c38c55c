"""What the tests of the coordinator share: workers with given fates, a client's whole answer, virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from cluster.coordinator.workers import Leg
from routing.fleet import Fleet, Role
from routing.router import Decision, Predicted, Rng, RouteRequest, Work
from tests.simulation.fake_workers import Behaviour
from tests.simulation.virtual_clock import run_virtual
from tests.simulation.world import Client, World, request

P = Behaviour(start_s=1.0)
D = Behaviour(start_s=0.5, gap_s=0.1)


def behave(**by_replica: Behaviour) -> Callable[[str, Leg], Behaviour]:
    """Fates by replica; the others do well."""
    default = {"prefill": P, "decode": D}
    return lambda replica_id, leg: by_replica.get(replica_id, by_replica.get("default", default[leg.role]))


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test in virtual time; afterwards nothing may be left."""

    def run() -> None:
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def answer(world: World, **shape: int) -> Client:
    client = Client(request(**shape))
    await client.run(world.coordinator, None, 0.0)
    client.check()
    world.check_idle()
    return client


async def first_on(world: World, replica_id: str, **shape: int) -> Client:
    """An answer whose first attempt is on this decode replica: the others are not there yet."""
    others = [
        r for r in world.workers.fleet().replicas.values() if r.role is Role.DECODE and r.replica_id != replica_id
    ]
    for other in others:
        world.workers.forget(other.replica_id)
        asyncio.get_running_loop().call_later(0.01, world.workers.add, other.replica_id, Role.DECODE)
    return await answer(world, **shape)


class Pair:
    """A router that has seen one pair only, and predicts."""

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        work = Work(100, 0.5, 4, 102, 7, prefill_keys=(1, 2), decode_keys=(3,))
        return Decision("d0", "p0", "the pair", Predicted(0.0, 0.5, 0.1, 0.1, 0.1, 100, 0), work)

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return None
