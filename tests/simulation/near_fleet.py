"""A coordinator over some workers of this process, in virtual time, and what becomes of them while streams run."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.workers import GenerationRequest
from cluster.engines.simulated.faults import Faults
from cluster.workers.pulse import PulseSettings
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from tests.simulation.near_workers import NearWorker, NearWorkers, engine_of
from tests.simulation.recorder import Recorder
from tests.simulation.virtual_clock import run_virtual

HEALTH = PulseSettings(stall_s=5.0, stall_steps=100.0, probe_s=3.0, look_s=0.5)
NOTICED_S = HEALTH.probe_s + HEALTH.stall_s + 2 * HEALTH.look_s
REPLACED_AFTER_S = 4.0
USUAL = CoordinatorSettings()


class Fleet:
    """A coordinator over some decode workers; one that is ill for a while is replaced, as Serve does."""

    def __init__(self, model: Path, tasks: asyncio.TaskGroup, settings: CoordinatorSettings) -> None:
        self.recorder = Recorder()
        self.workers = NearWorkers()
        self.engines = 0
        self._model = model
        self._tasks = tasks
        ledger = Ledger()
        self.coordinator = Coordinator(
            self.workers,
            LeastWork(LeastWorkSettings(), ledger),
            ledger,
            asyncio.get_running_loop().time,
            random.Random(0),
            settings,
            self.recorder,
        )

    async def add(self, name: str) -> NearWorker:
        worker = NearWorker(name, await engine_of(self._model), HEALTH, self._tasks)
        self._tasks.create_task(worker.watch.run())
        self.workers.add(worker)
        self.engines += 1
        return worker

    async def wedge(self, name: str) -> None:
        """Its engine makes no further step; another comes in its place some time after it was noticed."""
        worker = self.workers[name]
        worker.engine.inject(Faults(hang=True))
        wedged_at = asyncio.get_running_loop().time()
        await worker.ill.wait()
        assert asyncio.get_running_loop().time() - wedged_at <= NOTICED_S
        await asyncio.sleep(REPLACED_AFTER_S)
        assert len(worker.legs) == 0, "the wedged engine still has legs"
        self.workers.remove(name)
        await worker.engine.close()
        await self.add(f"{name}+")

    async def replace(self, name: str, finish_s: float) -> None:
        """It drains and leaves when nothing runs there any more; then another comes, as Serve does it."""
        worker = self.workers[name]
        worker.drain.begin(finish_s)
        assert await worker.legs.idle(60.0), f"nobody took what {name} has: {worker.legs}"
        self.workers.remove(name)
        await worker.engine.close()
        await self.add(f"{name}+")

    async def ask(self, number: int) -> list[int]:
        """The tokens of one greedy answer, through whatever happens."""
        sampling = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": 200, "ignore_eos": True})
        prompt = [(number * 37 + i * 11) % 400 + 3 for i in range(100 + 50 * number)]
        request = GenerationRequest(f"r{number}", prompt, sampling, 200)
        return [i async for deltas in self.coordinator.generate(request) for delta in deltas for i in delta.token_ids]


def in_a_fleet(
    model: Path,
    replicas: int,
    story: Callable[[Fleet], Awaitable[list[list[int]]]],
    settings: CoordinatorSettings = USUAL,
) -> list[list[int]]:
    """What a story with a fleet comes to, in virtual time."""

    async def main() -> list[list[int]]:
        async with asyncio.TaskGroup() as tasks:
            fleet = Fleet(model, tasks, settings)
            for number in range(replicas):
                await fleet.add(f"d{number}")
            told = await story(fleet)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        return told

    return run_virtual(main())


async def ask_all(fleet: Fleet) -> list[list[int]]:
    return list(await asyncio.gather(*(fleet.ask(number) for number in range(8))))
