"""Simulated engines on a tokenizer made on the spot."""

import atexit
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from cluster.engines.simulated.vocabulary import Vocabulary
from tests.unit.engines.simulated.bench import write_model


class SimulatedKind:
    """See `tests.contracts.engine_kind.EngineKind`. Small engines, a few milliseconds a step."""

    name = "simulated"
    block_size = 16
    max_model_len = 2048
    bytes_of_characters = ()

    @cached_property
    def model(self) -> Path:
        """A folder with a tokenizer, for as long as the tests run."""
        folder = TemporaryDirectory(prefix="baton-test-model-")
        atexit.register(folder.cleanup)
        return write_model(Path(folder.name))

    @property
    def vocabulary(self) -> int:
        return Vocabulary.load(self.model).size

    def settings(self, store: StoreAccess | None) -> SimulatedSettings:
        return SimulatedSettings(
            model_path=self.model,
            model_digest="contract",
            max_model_len=self.max_model_len,
            block_size=self.block_size,
            device_blocks=256,
            max_batched_tokens=64,
            prefill_tokens_per_s=50_000.0,
            decode_step_s=0.002,
            store=store,
        )

    def fingerprint(self) -> str:
        return kv_fingerprint(self.settings(None)).digest()

    async def create(self, socket_name: str, secret: bytes, index: int) -> SimulatedEngine:
        return await SimulatedEngine.create(self.settings(StoreAccess(socket_name, secret, f"simulated {index}")))


KIND = SimulatedKind()
