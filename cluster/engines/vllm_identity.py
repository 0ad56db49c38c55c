"""What a vLLM engine's KV blocks depend on, and whether they can be shared: read from its config, before it starts."""

import platform
from collections.abc import Mapping
from typing import Any

import torch
import vllm
from vllm.config import ModelConfig, VllmConfig
from vllm.platforms import current_platform
from vllm.utils.torch_utils import get_dtype_size, kv_cache_dtype_str_to_dtype
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

from cluster.models.identity import model_digest
from kvtransfer.connector.support import PLAIN, KvTraits
from kvtransfer.fingerprint import KvFingerprint


def fingerprint_of(config: VllmConfig) -> KvFingerprint:
    """The fingerprint of the engine that `config` makes. The connector compares its block size with the real one."""
    model, cache = config.model_config, config.cache_config
    head_size, tokens = model.get_head_size(), cache.block_size
    dtype = kv_cache_dtype_str_to_dtype(cache.cache_dtype, model)
    return KvFingerprint(
        model=model_digest(model.model),
        engine=f"vllm {vllm.__version__}",
        dtype=str(dtype).removeprefix("torch."),
        block_size_tokens=tokens,
        layers=model.get_num_layers(config.parallel_config),
        kv_heads=model.get_total_num_kv_heads(),
        unit_bytes=tokens * 2 * head_size * get_dtype_size(dtype),
        packing=_packing(dtype, tokens, head_size),
        hash_algorithm=cache.prefix_caching_hash_algo,
        computation=f"{model.dtype} {model.quantization} {sorted(_overrides(model).items())}",
    )


def _overrides(model: ModelConfig) -> Mapping[str, Any]:
    """What the configuration changes in the model's own, where it says so in values."""
    return model.hf_overrides if isinstance(model.hf_overrides, dict) else {}


def _packing(dtype: torch.dtype, block_size: int, head_size: int) -> str:
    """vLLM's CPU attention packs a unit for the instruction set it finds. On CUDA a unit is one row of K and V for each
    token, whatever the backend and its order in memory; the connector refuses tensors that are not.
    """
    if not current_platform.is_cpu():
        return f"{current_platform.device_name} token rows"
    isa = _get_attn_isa(dtype, block_size, head_size)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} cpu_attn/{isa}"


def traits_of(config: VllmConfig) -> KvTraits:
    """What is known of the KV cache before the engine has built it; the connector looks again at the real one."""
    model, parallel = config.model_config, config.parallel_config
    plain = not (model.use_mla or model.is_hybrid or model.is_attention_free or model.is_encoder_decoder)
    return KvTraits(
        groups=[PLAIN if plain else model.architecture],
        sliding_window=model.get_sliding_window(),
        attention_chunk_size=model.attention_chunk_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        context_parallel=parallel.decode_context_parallel_size,
        device=current_platform.device_name,
        hash_algorithm=config.cache_config.prefix_caching_hash_algo,
    )
