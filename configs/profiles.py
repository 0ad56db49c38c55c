"""Profiles by name, and the rates the router starts from: a profile's, with what a deployment replaces."""

from functools import cache
from pathlib import Path

from pydantic import JsonValue

from configs.errors import ConfigError, Problem
from configs.profile_file import ProfileConfig, read_profile
from configs.profile_names import SHIPPED, allowed, is_file, roofline_name
from configs.roofline import DoesNotFit, roofline
from configs.schema import BatonConfig, PoolConfig, RatesConfig, SimulatedEngineConfig, VllmEngineConfig

_BOUNDS = {"max_running": "max_num_seqs", "chunk_tokens": "max_num_batched_tokens"}
"""Rates that vLLM's engine arguments set, and their names there."""

_FOLDER = Path(__file__).parent / "profiles"


@cache
def named(name: str) -> ProfileConfig:
    """One that comes with Baton, a roofline, or a file; a relative path is from the current folder. All values are set.

    Raises `ConfigError`.
    """
    if name in SHIPPED:
        return read_profile(_FOLDER / f"{name}.yaml")
    if (parts := roofline_name(name)) is not None:
        try:
            return roofline(parts)
        except DoesNotFit as error:
            raise ConfigError([Problem("profile", "", str(error))]) from None
    if is_file(name):
        return read_profile(Path(name))
    raise ConfigError([Problem("profile", "", f"given {name!r}; allowed: {allowed()}")])


def rates_of(config: BatonConfig) -> RatesConfig:
    """The rates of a deployment. All values are set."""
    name, replaced = config.router.profile, config.router.rates
    base = _suited(config.decode) if name is None else named(name).rates
    return base.model_copy(update=_bounds(config.decode) | replaced.model_dump(exclude_none=True))


def with_rates(config: BatonConfig) -> BatonConfig:
    """The same deployment with its rates in it: gateways on other nodes need not read the profile's file."""
    router = config.router.model_copy(update={"profile": None, "rates": rates_of(config)})
    return config.model_copy(update={"router": router})


def _suited(pool: PoolConfig) -> RatesConfig:
    if isinstance(pool.engine, SimulatedEngineConfig):
        return _simulated(pool.engine)
    return named("h100_8b" if pool.num_gpus else "laptop_cpu").rates


def _bounds(pool: PoolConfig) -> dict[str, JsonValue]:
    """What a real engine was told of its batch, which no profile can know."""
    if not isinstance(pool.engine, VllmEngineConfig):
        return {}
    args = pool.engine.args
    return {rate: args[name] for rate, name in _BOUNDS.items() if isinstance(args.get(name), int)}


def _simulated(engine: SimulatedEngineConfig) -> RatesConfig:
    """What a simulated engine is told to take; the store is real, whatever the engine's speed."""
    return named("simulated").rates.model_copy(
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
