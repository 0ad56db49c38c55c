"""The whole coordinator against faults, in virtual time, over many seeded schedules."""

import asyncio
import os
from collections import Counter

import pytest

from tests.simulation.virtual_clock import Deadlock, run_virtual
from tests.simulation.world import SETTINGS, Chaos, Client

SEEDS = int(os.environ.get("BATON_SIMULATION_SEEDS", "500"))
FIRST_SEED = int(os.environ.get("BATON_SIMULATION_FIRST_SEED", "0"))


def live(seed: int) -> tuple[Chaos, list[Client]]:
    """Run one seed and check everything that must hold whatever happened."""

    async def main() -> tuple[Chaos, list[Client]]:
        chaos = Chaos(seed)
        clients = await chaos.run()
        await asyncio.sleep(0)
        chaos.world.check_idle()
        return chaos, clients

    chaos, clients = run_virtual(main())
    for client in clients:
        client.check()
    check_choices(chaos)
    outcomes = Counter(e.outcome for e in chaos.world.observer.endings)
    assert outcomes["broken"] == 0
    assert max((e.attempts - e.moves for e in chaos.world.observer.endings), default=0) <= SETTINGS.max_attempts
    assert max((e.moves for e in chaos.world.observer.endings), default=0) <= SETTINGS.max_moves
    return chaos, clients


def check_choices(chaos: Chaos) -> None:
    """A replica that failed a request gets it again only when it was away since, or when there is no other."""
    tried: dict[str, dict[str, int]] = {}
    for (_, leg), choice in zip(chaos.world.workers.opened, chaos.world.workers.choices, strict=True):
        if leg.role == "decode":
            lives = tried.setdefault(leg.request.request_id, {})
            assert lives.get(choice.taken) != choice.life or choice.able <= set(lives), "it got the request again"
            lives[choice.taken] = choice.life


def test_every_request_ends_once_and_leaves_nothing_behind_whatever_fails() -> None:
    endings: Counter[str] = Counter()
    attempts: Counter[int] = Counter()
    resumed: Counter[int] = Counter()
    moved: Counter[int] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        try:
            chaos, clients = live(seed)
        except (Exception, Deadlock) as error:
            pytest.fail(f"seed {seed}: {error!r} (BATON_SIMULATION_FIRST_SEED={seed} BATON_SIMULATION_SEEDS=1)")
        endings.update(c.ending if isinstance(c.ending, str) else type(c.ending).__name__ for c in clients)
        attempts.update(e.attempts for e in chaos.world.observer.endings)
        resumed.update(e.resumes for e in chaos.world.observer.endings if e.outcome == "finished")
        moved.update(e.moves for e in chaos.world.observer.endings if e.outcome == "finished")
    if SEEDS >= 100:
        assert set(endings) == {
            "finished",
            "gone",
            "DeadlineExceeded",
            "EngineFailed",
            "InvalidRequest",
            "NoReplicaReady",
            "Overloaded",
            "ReplicaLost",
        }, "the schedules do not reach every ending any more"
        assert attempts[2] > 0
        assert attempts[3] > 0
        assert resumed[1] > 0
        assert resumed[2] > 0
        assert moved[1] > 0
        assert moved[2] > 0


def test_the_same_seed_makes_the_same_history() -> None:
    (first, _), (second, _) = live(7), live(7)
    assert first.world.observer.endings == second.world.observer.endings
    assert first.world.observer.decisions == second.world.observer.decisions
