"""A request that waits for blocks which another replica computes: how that ends, and that nothing is left of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from routing.arrivals import Arrivals
from routing.fleet import Fleet
from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.router import Coming, Decision, Predicted, Rng, RouteRequest
from tests.simulation.virtual_clock import run_virtual
from tests.simulation.world import SETTINGS, Client, World, request
from tests.unit.coordinator.cases import behave

KEYS = [1, 2, 3]
COMING = Coming("d1", "store", there_s=1.0, keys=KEYS)


class Waiting:
    """A router that lets every request wait as long as it may, then sends it to d0."""

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        return Decision("d0", None, "", coming=COMING if request.may_wait else None)

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return None


class Story:
    """A world in which d1 computes the blocks; `promise` is that of its prompt."""

    def __init__(self) -> None:
        self.world = World(behave(), prefills=0, decodes=2)
        self.index = BlockIndex()
        self.index.place("d1", "store")
        for tier in Tier:
            self.index.snapshot("d1", tier, ())
        self.promise = self.index.promise("d1", KEYS, until=100.0)
        self.arrivals = Arrivals(self.index, self.world.clock)
        self.client = Client(request())
        self.began_at = self.world.clock()
        settings = replace(SETTINGS, max_waits=1)
        self.world.coordinator._with = replace(
            self.world.coordinator._with, router=Waiting(), arrivals=self.arrivals, settings=settings
        )

    def at(self, delay_s: float, act: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(delay_s, act)

    async def tell(self) -> None:
        """The client's whole answer."""
        await self.client.run(self.world.coordinator, None, 0.0)
        self.client.check()
        self.check()

    def check(self) -> None:
        self.world.check_idle()
        assert len(self.arrivals) == 0

    @property
    def began_after_s(self) -> float:
        """From the request to its leg."""
        [ended] = self.world.observer.endings
        [(_, leg)] = self.world.workers.opened
        assert ended.attempts == 1
        return SETTINGS.request_s - leg.deadline_s


def told(story: Callable[[Story], Awaitable[None]]) -> Story:
    async def main() -> Story:
        made = Story()
        await story(made)
        return made

    return run_virtual(main())


def ending(act: Callable[[Story], object]) -> Story:
    """What becomes of a request when this happens after half a second of waiting."""

    async def story(made: Story) -> None:
        made.at(0.5, lambda: act(made))
        await made.tell()

    return told(story)


@pytest.mark.parametrize(
    ("act", "arrival"),
    [
        (lambda story: story.index.apply("d1", Tier.HOST, KEYS, ()), "there"),
        (lambda story: story.index.retract(story.promise), "lost"),
        (lambda story: story.index.drop("d1"), "lost"),
    ],
)
def test_it_is_placed_as_soon_as_the_blocks_are_there_or_will_not_come(
    act: Callable[[Story], object], arrival: str
) -> None:
    story = ending(act)
    assert story.client.ending == "finished"
    assert story.world.observer.arrivals == [arrival]
    assert story.began_after_s == pytest.approx(0.5)


def test_blocks_that_are_late_are_waited_for_within_bounds() -> None:
    story = ending(lambda story: story.index.apply("d1", Tier.HOST, KEYS[:2], ()))
    assert story.client.ending == "finished"
    assert story.world.observer.arrivals == ["late"]
    assert story.began_after_s == pytest.approx(COMING.patience_s)


def test_meanwhile_its_work_is_reserved_where_it_is_to_go() -> None:
    async def story(made: Story) -> None:
        made.at(0.5, lambda: reserved.append(made.world.ledger.load("d0").requests))
        await made.tell()

    reserved: list[int] = []
    told(story)
    assert reserved == [1]


def test_a_client_that_leaves_while_it_waits_leaves_nothing() -> None:
    async def story(made: Story) -> None:
        asked = asyncio.ensure_future(made.client.run(made.world.coordinator, None, 0.0))
        made.at(0.5, asked.cancel)
        await asyncio.wait([asked])
        made.check()

    made = told(story)
    assert made.client.ending == "gone"
    assert made.world.observer.arrivals == []
    assert made.world.workers.opened == []


def test_a_client_that_leaves_as_the_blocks_come_harms_nobody() -> None:
    async def story(made: Story) -> None:
        asked = asyncio.ensure_future(made.client.run(made.world.coordinator, None, 0.0))

        def leave_and_come() -> None:
            asked.cancel()
            made.index.apply("d1", Tier.HOST, KEYS, ())
            came.append(True)

        made.at(0.5, leave_and_come)
        await asyncio.wait([asked])
        made.check()

    came: list[bool] = []
    made = told(story)
    assert (made.client.ending, came) == ("gone", [True])
