"""A simulated engine is measured in virtual time: its profile has the rates that it was told."""

import asyncio
import random
from pathlib import Path

import pytest

from cluster.engines.simulated.engine import SimulatedEngine
from cluster.engines.simulated.settings import SimulatedSettings
from cluster.profiling.bench import Bench
from cluster.profiling.fit import EngineShape, fit
from cluster.profiling.rig import CannotProfile
from cluster.profiling.schedule import DecodeTask, Limits, PromptTask, context_tokens, schedule
from cluster.profiling.session import Pace, Progress, measure, medians
from cluster.rates import router_profile
from configs.measured import DecodePoint, LoadPoint, MeasuredConfig, PrefillPoint, TransferPoint
from configs.schema import RatesConfig
from tests.simulation.virtual_clock import run_virtual
from tests.unit.engines.simulated.bench import settings, write_model

LIMITS = Limits(chunk_tokens=256, max_running=16, max_model_len=2048, kv_tokens=16_384, block_size_tokens=16)
MOVED = MeasuredConfig(
    load=tuple(LoadPoint(tokens=n, seconds=0.003 + n * 1e-6) for n in (128, 512, 2048)),
    transfer=tuple(TransferPoint(tokens=n, seconds=0.005 + n * 2e-6) for n in (128, 512, 2048)),
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> SimulatedSettings:
    return settings(
        write_model(tmp_path_factory.mktemp("model")),
        max_model_len=LIMITS.max_model_len,
        block_size=LIMITS.block_size_tokens,
        device_blocks=LIMITS.kv_tokens // LIMITS.block_size_tokens,
        max_running=LIMITS.max_running,
        max_batched_tokens=LIMITS.chunk_tokens,
        prefill_tokens_per_s=4_000.0,
        decode_step_s=0.012,
        decode_request_s=0.0007,
    )


async def profiled(told: SimulatedSettings, pace: Pace, seen: list[Progress]) -> MeasuredConfig:
    engine = await SimulatedEngine.create(told)
    clock = asyncio.get_running_loop().time
    bench = Bench(engine, clock, random.Random(1), context_tokens(schedule(LIMITS, pace.quick)))
    try:
        return await measure(bench, LIMITS, pace, seen.append)
    finally:
        await engine.close()


@pytest.mark.parametrize("quick", [True, False])
def test_a_simulated_engine_has_the_rates_that_it_was_told(told: SimulatedSettings, quick: bool) -> None:
    seen: list[Progress] = []
    measured = run_virtual(profiled(told, Pace(2, quick, 3_600), seen))
    assert measured.rounds == 2
    found = fit(
        measured.model_copy(update={"load": MOVED.load, "transfer": MOVED.transfer}),
        EngineShape(LIMITS.chunk_tokens, LIMITS.max_running, told.kv_bytes_per_token),
    )
    assert found.rates["prefill_step_s"] == pytest.approx(told.decode_step_s, rel=0.03)
    assert 1 / found.rates["prefill_token_s"] == pytest.approx(told.prefill_tokens_per_s, rel=0.03)
    assert found.rates["decode_step_s"] == pytest.approx(told.decode_step_s, rel=0.03)
    assert found.rates["decode_request_s"] == pytest.approx(told.decode_request_s, rel=0.05)
    assert max(abs(point.error) for point in found.points) < 0.05
    assert seen[-1].left_s is not None
    assert 0 < seen[-1].done < seen[-1].total


def test_fitted_rates_are_what_the_router_predicts_with() -> None:
    shape = EngineShape(256, 32, 23_040)
    rates = router_profile(RatesConfig.model_validate(fit(points(), shape).rates))
    for point in points().prefill:
        assert rates.prefill_s(point.tokens) == pytest.approx(point.seconds, rel=1e-6)
    for step in points().decode:
        assert rates.step_s(step.requests, step.requests * step.context_tokens) == pytest.approx(step.seconds, rel=1e-6)
    assert rates.load_s(512) == pytest.approx(0.003 + 512e-6)


def points() -> MeasuredConfig:
    """Of an engine that is exactly as the model has it."""
    prompts = (32, 64, 128, 256, 1024, 4096)
    return MeasuredConfig(
        rounds=1,
        prefill=tuple(
            PrefillPoint(prompts=1, tokens=n, seconds=0.004 * -(-n // 256) + 0.0007 * n + 1e-7 * n * n / 2)
            for n in prompts
        ),
        decode=tuple(
            DecodePoint(requests=n, context_tokens=c, seconds=0.03 + 0.002 * n + 2e-6 * n * c)
            for n in (1, 4, 16)
            for c in (128, 1024)
        ),
        load=MOVED.load,
        transfer=MOVED.transfer,
    )


def test_what_does_not_show_is_zero_and_never_negative() -> None:
    flat = tuple(DecodePoint(requests=n, context_tokens=100, seconds=0.03 - 1e-5 * n) for n in (1, 4, 16))
    found = fit(points().model_copy(update={"decode": flat}), EngineShape(256, 32, 23_040)).rates
    assert found["decode_step_s"] == pytest.approx(0.03, rel=0.01)
    assert found["decode_request_s"] == 0.0
    assert min(found.values()) >= 0


def test_points_are_medians_over_rounds() -> None:
    rounds = [[PrefillPoint(prompts=1, tokens=8, seconds=each)] for each in (0.2, 9.0, 0.1)]
    assert medians(rounds).prefill == (PrefillPoint(prompts=1, tokens=8, seconds=0.2),)


def test_too_little_time_for_one_round_is_refused_with_what_helps(told: SimulatedSettings) -> None:
    with pytest.raises(CannotProfile, match=r"--minutes: 0.01 are too few: \d+% of the first round were done"):
        run_virtual(profiled(told, Pace(2, True, 0.6), []))


def test_a_round_that_would_end_late_is_not_begun(told: SimulatedSettings) -> None:
    async def timed(pace: Pace) -> tuple[int, float]:
        measured = await profiled(told, pace, [])
        return measured.rounds, asyncio.get_running_loop().time()

    _, once_s = run_virtual(timed(Pace(1, True, 3_600)))
    rounds, all_s = run_virtual(timed(Pace(99, True, 3 * once_s)))
    assert 3 <= rounds < 99
    assert all_s <= 3 * once_s


def test_a_small_engine_is_asked_for_what_it_holds() -> None:
    small = Limits(chunk_tokens=2048, max_running=4, max_model_len=300, kv_tokens=512, block_size_tokens=16)
    for task in schedule(small, quick=False):
        match task:
            case PromptTask():
                assert task.prompts * task.tokens < small.kv_tokens
                assert task.tokens < small.max_model_len
            case DecodeTask():
                assert task.requests <= small.max_running
                assert task.requests * task.context_tokens < small.kv_tokens


def test_a_config_without_a_model_here_is_refused_by_its_key(tmp_path: Path) -> None:
    from cluster.profiling.rig import rig
    from configs.schema import BatonConfig

    async def start() -> None:
        async with rig(BatonConfig.model_validate({"model": {"path": "./none"}}), "decode"):
            pass

    with pytest.raises(CannotProfile, match=r"model.path: './none' is no local folder"):
        asyncio.run(start())
