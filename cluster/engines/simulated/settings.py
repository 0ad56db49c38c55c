"""What a simulated engine is built from. Immutable; durations in seconds of real time before `speed` divides them."""

from dataclasses import dataclass, field
from pathlib import Path

from cluster.engines.simulated.faults import Faults


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How to reach the node's KV store.

    `connect_s` bounds connecting and each reply, `load_s` a whole load or save, `retry_s` is the pause before each
    attempt to connect again.
    """

    socket_name: str
    secret: bytes
    name: str = "simulated"
    connect_s: float = 5.0
    load_s: float = 10.0
    retry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """Without `store` the engine neither commits nor loads blocks. `max_model_len` None: the model folder's own.

    `lora_names` are the adapters requests may name.
    """

    model_path: Path
    model_digest: str
    max_model_len: int | None = None
    block_size: int = 16
    device_blocks: int = 4096
    kv_bytes_per_token: int = 256
    max_running: int = 64
    max_batched_tokens: int = 2048
    prefill_tokens_per_s: float = 8000.0
    decode_step_s: float = 0.010
    decode_request_s: float = 0.0002
    speed: float = 1.0
    lora_names: frozenset[str] = frozenset()
    store: StoreAccess | None = None
    faults: Faults = field(default_factory=Faults)

    @property
    def block_bytes(self) -> int:
        """Bytes of KV of one block: the size of a slot in the store."""
        return self.block_size * self.kv_bytes_per_token
