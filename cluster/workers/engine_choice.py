"""Which engine a pool's configuration names, and what is known of it before it starts.

The engines are imported only when chosen, so that a worker with a simulated engine imports neither vllm nor torch, and
vLLM is imported after its environment is set.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cluster.engines.engine import Engine
from configs.schema import BatonConfig, PoolConfig, SimulatedEngineConfig, VllmEngineConfig
from kvtransfer.fingerprint import KvFingerprint

if TYPE_CHECKING:
    from cluster.engines.simulated.settings import SimulatedSettings
    from cluster.engines.vllm_settings import VllmEngineSettings


class StartedEngine(Engine, Protocol):
    """An engine and what it turned out to be."""

    @property
    def block_size_tokens(self) -> int:
        """Tokens in a KV block."""
        ...

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt plus output."""
        ...

    @property
    def kv_blocks(self) -> int:
        """Blocks the device can hold."""
        ...

    @property
    def max_batched_tokens(self) -> int:
        """Prompt tokens computed in one step at most."""
        ...

    @property
    def max_running(self) -> int:
        """Requests in one batch at most."""
        ...

    async def forget_cached(self) -> None:
        """Let the device forget its cached blocks; the store keeps its own. Raises `EngineFailed` when it will not."""
        ...


class ChosenEngine(Protocol):
    """An engine that has not been started."""

    @property
    def kind(self) -> str:
        """`vllm` or `simulated`."""
        ...

    def fingerprint(self) -> KvFingerprint:
        """Who may exchange blocks with it: decides which store it needs. May take a second."""
        ...

    async def create(self, store_socket: str) -> StartedEngine:
        """Start it on the node's store. Raises `EngineFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a replica knows besides the configuration. `cores` are its own; empty: not pinned."""

    replica_id: str
    model_path: str
    model_digest: str
    cores: Sequence[int] = ()


def choose(config: BatonConfig, pool: PoolConfig, surroundings: Surroundings) -> ChosenEngine:
    """The pool's engine for this replica."""
    match pool.engine:
        case VllmEngineConfig() as engine:
            return _vllm(config, engine, surroundings)
        case SimulatedEngineConfig() as engine:
            return _simulated(config, engine, surroundings)


def _vllm(config: BatonConfig, engine: VllmEngineConfig, surroundings: Surroundings) -> "ChosenVllm":
    from cluster.engines.vllm_settings import VllmEngineSettings

    return ChosenVllm(
        VllmEngineSettings(
            model=surroundings.model_path,
            store_socket="",
            secret=config.security.secret,
            args=engine.args,
            env=engine.env,
            cores=surroundings.cores,
            max_model_len=config.model.max_model_len,
            start_s=config.timeouts.start_s,
            store_timeout_s=config.timeouts.load_s,
            replay_tokens=engine.replay_tokens,
        )
    )


def _simulated(config: BatonConfig, engine: SimulatedEngineConfig, surroundings: Surroundings) -> "ChosenSimulated":
    from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess

    timeouts = config.timeouts
    access = StoreAccess("", config.security.secret, surroundings.replica_id, timeouts.connect_s, timeouts.load_s)
    return ChosenSimulated(
        SimulatedSettings(
            model_path=Path(surroundings.model_path),
            model_digest=surroundings.model_digest,
            max_model_len=config.model.max_model_len,
            store=access,
            **engine.model_dump(exclude={"kind"}),
        )
    )


@dataclass(frozen=True, slots=True)
class ChosenVllm:
    """A real engine. Setting its environment is for good: one engine in a process."""

    settings: "VllmEngineSettings"
    kind: str = "vllm"

    def fingerprint(self) -> KvFingerprint:
        """See `ChosenEngine`. Imports vLLM."""
        self.settings.apply_environment()
        from cluster.engines.vllm_args import engine_args
        from cluster.engines.vllm_identity import fingerprint_of

        return fingerprint_of(engine_args(self.settings).create_engine_config())

    async def create(self, store_socket: str) -> StartedEngine:
        """See `ChosenEngine`. Blocks the event loop until the engine is ready."""
        from cluster.engines.vllm_engine import VllmEngine

        return await VllmEngine.create(replace(self.settings, store_socket=store_socket))


@dataclass(frozen=True, slots=True)
class ChosenSimulated:
    """An engine without weights."""

    settings: "SimulatedSettings"
    kind: str = "simulated"

    def fingerprint(self) -> KvFingerprint:
        """See `ChosenEngine`."""
        from cluster.engines.simulated.engine import kv_fingerprint

        return kv_fingerprint(self.settings)

    async def create(self, store_socket: str) -> StartedEngine:
        """See `ChosenEngine`."""
        from cluster.engines.simulated.engine import SimulatedEngine

        assert self.settings.store is not None
        access = replace(self.settings.store, socket_name=store_socket)
        return await SimulatedEngine.create(replace(self.settings, store=access))
