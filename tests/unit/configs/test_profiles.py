"""Which rates a deployment's router starts from."""

from dataclasses import fields
from pathlib import Path

import pytest

from configs import profiles
from configs.errors import ConfigError
from configs.load import load
from configs.measured import MeasuredConfig, PrefillPoint
from configs.profile_file import write_profile
from configs.profile_names import SHIPPED
from configs.schema import BatonConfig, ModelConfig, PoolConfig, RatesConfig, RouterConfig, VllmEngineConfig
from configs.schema import SimulatedEngineConfig as Simulated
from routing.profile import Profile

FOLDER = Path(profiles.__file__).parent / "profiles"


def rates(decode: PoolConfig, profile: str | None = None, **replaced: float) -> RatesConfig:
    router = RouterConfig(profile=profile, rates=RatesConfig.model_validate(replaced))
    return profiles.rates_of(BatonConfig(model=ModelConfig(path="m"), decode=decode, router=router))


def test_every_file_is_a_profile_that_can_be_named() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_profile_has_all_that_the_cost_model_asks_for(name: str) -> None:
    assert set(RatesConfig.model_fields) == {field.name for field in fields(Profile)}
    assert None not in profiles.named(name).model_dump().values()


def test_the_simulated_profile_is_that_of_an_engine_with_default_settings() -> None:
    assert rates(PoolConfig(engine=Simulated())) == profiles.named("simulated").rates


def test_simulated_engines_are_profiled_by_their_settings() -> None:
    found = rates(PoolConfig(engine=Simulated(speed=2.0, prefill_tokens_per_s=500.0)))
    assert (found.decode_step_s, found.prefill_token_s) == (0.005, 0.001)


def test_real_engines_are_profiled_by_what_they_run_on() -> None:
    assert rates(PoolConfig()) == profiles.named("laptop_cpu").rates
    assert rates(PoolConfig(num_gpus=1)) == profiles.named("h100_8b").rates


@pytest.mark.parametrize("profile", [None, "h100_8b"])
def test_the_bounds_of_a_real_engines_batch_are_what_it_was_given(profile: str | None) -> None:
    engine = VllmEngineConfig(args={"max_num_seqs": 7, "max_num_batched_tokens": 512, "block_size": 32})
    found = rates(PoolConfig(num_gpus=1, engine=engine), profile)
    assert found == profiles.named("h100_8b").rates.model_copy(update={"max_running": 7, "chunk_tokens": 512})
    assert rates(PoolConfig(engine=engine), profile, max_running=9).max_running == 9


def test_a_named_profile_is_taken_whatever_the_engine() -> None:
    assert rates(PoolConfig(engine=Simulated()), "h100_8b") == profiles.named("h100_8b").rates


def test_single_rates_can_be_replaced() -> None:
    found = rates(PoolConfig(), "h100_8b", max_running=7, host_latency_s=0)
    assert found == profiles.named("h100_8b").rates.model_copy(update={"max_running": 7, "host_latency_s": 0.0})


def test_an_unknown_profile_and_an_impossible_rate_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    router = "{profile: abacus, rates: {chunk_tokens: 0}}"
    file.write_text(
        f"applications:\n- import_path: cluster.app:build\n  args:\n    model: {{path: m}}\n    router: {router}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    profile, rate = str(caught.value).splitlines()
    assert "router.profile: given 'abacus'; allowed: laptop_cpu, h100_8b, simulated; hardware and model" in profile
    assert "router.rates.chunk_tokens: given 0" in rate


def test_a_profile_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    mine = profiles.named("laptop_cpu").model_copy(update={"decode_step_s": 0.02})
    file.write_text(write_profile(mine))
    assert rates(PoolConfig(), str(file)) == mine.rates


def test_a_measured_profile_keeps_its_points_and_gives_the_router_its_rates(tmp_path: Path) -> None:
    file = tmp_path / "measured.yaml"
    measured = MeasuredConfig(rounds=3, prefill=(PrefillPoint(prompts=1, tokens=256, seconds=0.3),))
    mine = profiles.named("laptop_cpu").model_copy(update={"measured": measured, "prefill_token_s": 0.001})
    file.write_text(write_profile(mine))
    assert "  - {prompts: 1, tokens: 256, seconds: 0.3}\n" in file.read_text()
    assert profiles.named(str(file)) == mine
    assert rates(PoolConfig(), str(file)).prefill_token_s == 0.001


def test_what_is_wrong_with_a_profile_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("prefil_step_s: 1\n")
    with pytest.raises(ConfigError) as caught:
        profiles.named(str(file))
    assert "mine.yaml: prefil_step_s: unknown key; did you mean 'prefill_step_s'?" in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        profiles.named(str(tmp_path / "none.yaml"))


def test_rates_that_are_not_set_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("about: x\nkv_tokens: 1\nstart_s: 1\n")
    with pytest.raises(ConfigError, match="prefill_step_s: is required"):
        profiles.named(str(file))


def test_gateways_get_the_rates_and_need_no_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(write_profile(profiles.named("h100_8b")))
    router = RouterConfig(profile=str(file))
    config = BatonConfig(model=ModelConfig(path="m"), router=router)
    settled = profiles.with_rates(config)
    file.unlink()
    assert profiles.rates_of(settled) == profiles.named("h100_8b").rates
