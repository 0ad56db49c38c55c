"""Workers drain at any moment while streams run, in virtual time: no stream breaks, no token is another, no attempt is
spent.
"""

import asyncio
import random
from pathlib import Path

import pytest

from cluster.coordinator.coordinator import CoordinatorSettings
from tests.simulation.near_fleet import Fleet, ask_all, in_a_fleet
from tests.unit.engines.simulated.bench import write_model

ONE_ATTEMPT = CoordinatorSettings(max_attempts=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def undisturbed(model: Path) -> list[list[int]]:
    return in_a_fleet(model, 3, ask_all)


@pytest.mark.parametrize("seed", range(10))
def test_a_whole_fleet_is_replaced_one_by_one_under_load(model: Path, undisturbed: list[list[int]], seed: int) -> None:
    rng = random.Random(seed)

    async def story(fleet: Fleet) -> list[list[int]]:
        asking = asyncio.ensure_future(ask_all(fleet))
        for number in range(3):
            await asyncio.sleep(rng.random())
            await fleet.replace(f"d{number}", rng.choice([0.0, rng.random()]))
        answers = await asking
        assert sum(ended.moves for ended in fleet.recorder.endings) > 0
        assert all(ended.attempts - ended.moves == 1 for ended in fleet.recorder.endings)
        return answers

    assert in_a_fleet(model, 3, story, ONE_ATTEMPT) == undisturbed


@pytest.mark.parametrize("seed", range(10))
def test_drains_that_begin_and_are_undone_at_any_moment(model: Path, undisturbed: list[list[int]], seed: int) -> None:
    rng = random.Random(seed)

    async def story(fleet: Fleet) -> list[list[int]]:
        asking = asyncio.ensure_future(ask_all(fleet))
        while not asking.done():
            drain = fleet.workers[f"d{rng.randrange(2)}"].drain  # the third always serves
            if rng.random() < 0.5:
                drain.begin(rng.random())
            else:
                drain.undo()
            await asyncio.sleep(rng.random() / 2)
        assert all(ended.attempts - ended.moves == 1 for ended in fleet.recorder.endings)
        return await asking

    assert in_a_fleet(model, 3, story, ONE_ATTEMPT) == undisturbed


def test_the_only_worker_keeps_its_streams_until_another_comes(model: Path, undisturbed: list[list[int]]) -> None:
    async def story(fleet: Fleet) -> list[list[int]]:
        asking = asyncio.ensure_future(ask_all(fleet))
        await asyncio.sleep(0.5)
        only = fleet.workers["d0"]
        only.drain.begin(0.2)
        await asyncio.sleep(1.0)
        assert len(only.legs) == 8
        await fleet.add("d1")
        assert await only.legs.idle(2.0)
        return await asking

    assert in_a_fleet(model, 1, story, ONE_ATTEMPT) == undisturbed
