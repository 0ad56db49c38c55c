"""An engine whose processes die or stop is noticed, and closing it leaves nothing."""

import asyncio

import psutil
import pytest

from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_engine import VllmEngine
from cluster.errors import EngineFailed
from cluster.workers.engine_watch import EngineWatch
from cluster.workers.pulse import PulseSettings
from tests.contracts.engine_pair import sampling
from tests.engine.asking import new_prompt

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]


WEDGED_SOON = PulseSettings(stall_s=2.0, stall_steps=0.0, probe_s=0.5, look_s=0.1)


def processes() -> tuple[psutil.Process, psutil.Process]:
    """The engine's core and its worker."""
    children = psutil.Process().children(recursive=True)
    ours = [child for child in children if child.name().startswith("VLLM::") and child.status() != psutil.STATUS_ZOMBIE]
    core, worker = sorted(ours, key=lambda child: "EngineCore" not in child.name())
    return core, worker


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_stopped_engine_core_is_noticed_and_so_is_its_going_on(engine: VllmEngine, busy: bool) -> None:
    changed = asyncio.Event()
    watch = EngineWatch(engine, WEDGED_SOON, changed.set)
    looking = asyncio.create_task(watch.run())
    core, _ = processes()
    deltas = engine.generate(EngineRequest("held up", new_prompt(40), sampling(max_tokens=200)))
    try:
        if busy:
            await anext(deltas)
        async with asyncio.timeout(30):
            core.suspend()
            await changed.wait()
            assert "has made no step" in watch.ill
            changed.clear()
            core.resume()
            await changed.wait()
            assert watch.ill == ""
    finally:
        core.resume()
        await deltas.aclose()
        looking.cancel()
        await asyncio.wait([looking])


async def test_a_dead_engine_core_fails_streams_and_health_and_takes_a_stopped_worker_along(engine: VllmEngine) -> None:
    """Ends the shared engine: the files of those who use it sort before this one."""
    core, worker = ours = processes()
    deltas = engine.generate(EngineRequest("cut", new_prompt(40), sampling(max_tokens=1500)))
    await anext(deltas)
    worker.suspend()
    core.kill()
    with pytest.raises(EngineFailed, match="died"):
        [delta async for delta in deltas]
    with pytest.raises(EngineFailed):
        await engine.check_health()
    assert engine.statistics().dead
    await engine.close()
    _, alive = psutil.wait_procs(ours, timeout=5.0)
    assert alive == []
