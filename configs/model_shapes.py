"""Models by what decides their speed: sizes as in each one's `config.json` and model card on the Hugging Face hub."""

from dataclasses import dataclass
from typing import Final

BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer with grouped-query attention, in bf16.

    `active` parameters are used for one token: fewer than `parameters` in a mixture of experts.
    """

    parameters: float
    active: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def weight_bytes(self) -> float:
        """All weights."""
        return BF16_BYTES * self.parameters

    @property
    def kv_bytes_per_token(self) -> int:
        """A key and a value for each layer and KV head."""
        return 2 * BF16_BYTES * self.layers * self.kv_heads * self.head_dim


def _dense(parameters: float, layers: int, heads: int, kv_heads: int, head_dim: int) -> ModelShape:
    return ModelShape(parameters, parameters, layers, heads, kv_heads, head_dim)


MODELS: Final = {
    "smollm2-135m": _dense(0.135e9, 30, 9, 3, 64),
    "llama-3-1b": _dense(1.24e9, 16, 32, 8, 64),
    "llama-3-8b": _dense(8.03e9, 32, 32, 8, 128),
    "qwen3-8b": _dense(8.19e9, 36, 32, 8, 128),
    "mistral-small-24b": _dense(23.6e9, 40, 32, 8, 128),
    "qwen3-32b": _dense(32.8e9, 64, 64, 8, 128),
    "llama-3-70b": _dense(70.6e9, 80, 64, 8, 128),
    "llama-3-405b": _dense(405.9e9, 126, 128, 8, 128),
    "mixtral-8x7b": ModelShape(46.7e9, 12.9e9, 32, 32, 8, 128),
    "qwen3-30b-a3b": ModelShape(30.5e9, 3.3e9, 48, 32, 4, 128),
}
