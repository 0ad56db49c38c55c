import asyncio
from pathlib import Path

from cluster.engines.simulated.engine import SimulatedEngine
from cluster.engines.simulated.faults import Faults, Injected
from tests.unit.engines.simulated.bench import prompt_of, request, run, settings


def test_a_counted_fault_strikes_as_often_as_told() -> None:
    injected = Injected(Faults(fail_prefills=1, corrupt_commits=2, die_after_tokens=2))
    assert [injected.fails_prefill() for _ in range(3)] == [True, False, False]
    assert [injected.corrupts_commit() for _ in range(3)] == [True, True, False]
    assert [injected.dies_emitting(1) for _ in range(3)] == [False, True, True]


def test_without_faults_nothing_strikes() -> None:
    injected = Injected(Faults())
    assert not injected.fails_prefill()
    assert not injected.corrupts_commit()
    assert not injected.dies_emitting(1_000_000)


async def test_a_slow_engine_takes_as_much_longer_as_told(model: Path) -> None:
    engine = await SimulatedEngine.create(settings(model, decode_step_s=0.002, faults=Faults(slow_factor=20.0)))
    began_s = asyncio.get_running_loop().time()
    await run(engine, request("one", prompt_of(10), max_tokens=2))
    assert asyncio.get_running_loop().time() - began_s >= 2 * 20 * 0.002
    await engine.close()
