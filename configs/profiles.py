"""The rates the router starts from: a profile, named or suited to the decode engine, and what a deployment replaces."""

from functools import cache
from pathlib import Path

import yaml

from configs.schema import BatonConfig, PoolConfig, ProfileName, RatesConfig, SimulatedEngineConfig

_FOLDER = Path(__file__).parent / "profiles"


@cache
def named(name: ProfileName) -> RatesConfig:
    """A profile that comes with Baton. All its values are set."""
    return RatesConfig.model_validate(yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def rates_of(config: BatonConfig) -> RatesConfig:
    """The rates of a deployment. All values are set."""
    name, replaced = config.router.profile, config.router.rates
    base = _suited(config.decode) if name is None else named(name)
    return base.model_copy(update=replaced.model_dump(exclude_none=True))


def _suited(pool: PoolConfig) -> RatesConfig:
    if isinstance(pool.engine, SimulatedEngineConfig):
        return _simulated(pool.engine)
    return named("h100_8b") if pool.num_gpus else named("laptop_cpu")


def _simulated(engine: SimulatedEngineConfig) -> RatesConfig:
    """What a simulated engine is told to take; the store is real, whatever the engine's speed."""
    return named("simulated").model_copy(
        update={
            "prefill_step_s": engine.decode_step_s / engine.speed,
            "prefill_token_s": 1 / engine.prefill_tokens_per_s / engine.speed,
            "chunk_tokens": engine.max_batched_tokens,
            "decode_step_s": engine.decode_step_s / engine.speed,
            "decode_request_s": engine.decode_request_s / engine.speed,
            "max_running": engine.max_running,
            "kv_bytes_per_token": engine.kv_bytes_per_token,
        }
    )
