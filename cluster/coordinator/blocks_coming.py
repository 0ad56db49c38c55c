"""Waiting, in an event loop, for blocks that another replica computes: see `routing.arrivals`."""

import asyncio

from routing.arrivals import Arrival, Arrivals
from routing.router import Coming


async def until_there(arrivals: Arrivals, coming: Coming, most_s: float) -> Arrival:
    """Return when the blocks are in their store, will not come, or are late. A cancelled wait leaves nothing."""
    ended: asyncio.Future[Arrival] = asyncio.get_running_loop().create_future()

    def end(arrival: Arrival) -> None:
        if not ended.done():  # a wait that is cancelled is in line until its task has run
            ended.set_result(arrival)

    number = arrivals.wait(coming, end)
    try:
        async with asyncio.timeout(most_s):
            return await ended
    except TimeoutError:
        return Arrival.LATE
    finally:
        arrivals.forget(number)
