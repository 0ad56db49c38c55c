"""Who may exchange KV blocks: a digest of everything the bytes inside a block depend on.

vLLM's block hash covers tokens, LoRA, multimodal input and salt, but neither the model, the dtype, the block size,
the layout nor the CPU instruction set that decides how a unit is packed. Two engines exchange blocks only if all of
these agree. Fewer have to for one engine to go on with another's answer: what the tokens depend on.
"""

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class KvFingerprint:
    """What a KV block's bytes depend on, apart from its tokens."""

    model: str  # digest of the model's identity (config and weights)
    engine: str  # e.g. "vllm 0.32.0" or "simulated 1"
    dtype: str  # of the KV cache
    block_size_tokens: int
    layers: int
    kv_heads: int  # of the whole model, not of one rank
    unit_bytes: int  # one (layer, head) of one block
    packing: str  # what decides a unit's inside: instruction set and attention backend
    hash_algorithm: str
    computation: str = ""  # what else the numbers depend on, e.g. how weights are quantised when they are loaded

    def digest(self) -> str:
        """32 hexadecimal characters; equal exactly when all fields are equal."""
        return _digest(asdict(self))

    def model_identity(self) -> str:
        """As short; equal where the same prompt is followed by the same tokens, as far as kernels go."""
        return _digest([self.model, self.engine, self.dtype, self.computation])

    @property
    def block_bytes(self) -> int:
        """Bytes of one whole block: the size of a slot."""
        return self.layers * self.kv_heads * self.unit_bytes


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
