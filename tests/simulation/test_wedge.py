"""Engines wedge at any moment while streams run, in virtual time: no stream breaks, no token is another."""

import asyncio
import random
from pathlib import Path

import pytest

from cluster.coordinator.coordinator import CoordinatorSettings
from cluster.engines.simulated.faults import Faults
from tests.simulation.near_fleet import Fleet, ask_all, in_a_fleet
from tests.unit.engines.simulated.bench import write_model

MOST = CoordinatorSettings().max_attempts - 1
"""Of three: a request may meet each of them before it is noticed."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def undisturbed(model: Path) -> list[list[int]]:
    return in_a_fleet(model, 3, ask_all)


@pytest.mark.parametrize("seed", range(20))
def test_streams_of_a_wedged_engine_go_on_elsewhere_with_the_same_tokens(
    model: Path, undisturbed: list[list[int]], seed: int
) -> None:
    rng = random.Random(seed)

    async def story(fleet: Fleet) -> list[list[int]]:
        async def wedge(name: str) -> None:
            await asyncio.sleep(rng.random() * 3)
            await fleet.wedge(name)

        wedges = [asyncio.ensure_future(wedge(f"d{number}")) for number in range(rng.choice([1, MOST]))]
        answers = await ask_all(fleet)
        await asyncio.gather(*wedges)
        return answers

    assert in_a_fleet(model, 3, story) == undisturbed


def test_the_only_engine_wedges_and_its_streams_wait_for_another(model: Path, undisturbed: list[list[int]]) -> None:
    async def story(fleet: Fleet) -> list[list[int]]:
        asking = asyncio.ensure_future(ask_all(fleet))
        await asyncio.sleep(1.0)
        await fleet.wedge("d0")
        return await asking

    assert in_a_fleet(model, 1, story) == undisturbed


def test_a_slow_engine_is_left_alone(model: Path) -> None:
    """Steps that take a hundred times as long, for a minute, are still steps."""

    async def story(fleet: Fleet) -> list[list[int]]:
        fleet.workers["d0"].engine.inject(Faults(slow_factor=100.0))
        await fleet.ask(0)
        assert not fleet.workers["d0"].ill.is_set()
        return []

    in_a_fleet(model, 1, story)
