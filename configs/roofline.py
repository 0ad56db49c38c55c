"""Profiles of hardware that was not measured, from what its maker states: a roofline.

A step takes the time of its arithmetic or of its memory traffic, each at a share of the peak that good kernels reach,
and a fixed part for launching it. Per replica of n accelerators with tensor parallelism:

    prefill, each token           2 · active parameters / (n · FLOP/s · COMPUTE)
    attention, each pair          4 · layers · heads · head_dim / (n · FLOP/s · COMPUTE): for the score and the value
    a decode step                 bytes of all weights / (n · memory bytes/s · MEMORY) + LAUNCH_S, and where n > 1
                                  ALL_REDUCE_S · 2 · layers
    each request in it            2 · active parameters / (n · FLOP/s · COMPUTE) + REQUEST_S
    each token of context in it   bytes of KV a token / (n · memory bytes/s · MEMORY)
    KV cache                      n · memory · USABLE - weights - n · WORKSPACE_BYTES

Sources: J. Kaplan et al., Scaling Laws for Neural Language Models (2020) for 2 FLOP a parameter and token; S. Williams
et al., Roofline (2009); R. Pope et al., Efficiently Scaling Transformer Inference (2022). The shares are what published
runs of vLLM reach: 8B on one H100 computes 8k tokens in 250 ms and 32k in 1.17 s (llm-d, KV offloading), which this
gives as 0.25 and 1.35 s. What a router observes corrects all of it.
"""

from typing import Final

from configs.hardware import ACCELERATORS, Accelerator
from configs.model_shapes import MODELS, ModelShape
from configs.profile_file import ProfileConfig
from configs.profile_names import RooflineName

COMPUTE: Final = 0.6
MEMORY: Final = 0.75
TRANSFER: Final = 0.8
LAUNCH_S: Final = 0.002
ALL_REDUCE_S: Final = 12e-6
REQUEST_S: Final = 20e-6
USABLE: Final = 0.9
WORKSPACE_BYTES: Final = 4e9
LEAST_KV_TOKENS: Final = 8_192
WEIGHTS_BYTES_PER_S: Final = 2e9
START_S: Final = 40.0
CHUNK_TOKENS: Final = 8_192
MAX_RUNNING: Final = 256


class DoesNotFit(ValueError):
    """The model's weights leave no room for KV on so few accelerators."""


def roofline(name: RooflineName) -> ProfileConfig:
    """The profile. Raises `DoesNotFit`."""
    device, model, n = ACCELERATORS[name.accelerator], MODELS[name.model], name.count
    kv_tokens = _kv_tokens(device, model, n)
    if kv_tokens < LEAST_KV_TOKENS:
        least = least_count(name.accelerator, name.model)
        raise DoesNotFit(f"{name}: {least} x {device.about} at least; {n} leave no room for KV")
    flop_per_s, bytes_per_s = n * device.flop_per_s * COMPUTE, n * device.memory_bytes_per_s * MEMORY
    all_reduce_s = ALL_REDUCE_S * 2 * model.layers if n > 1 else 0.0
    token_s = 2 * model.active / flop_per_s
    return ProfileConfig(
        about=f"{name.model} in bf16 on {n} x {device.about}: a roofline, not measured",
        prefill_step_s=LAUNCH_S + all_reduce_s,
        prefill_token_s=token_s,
        prefill_attention_s=4 * model.layers * model.heads * model.head_dim / flop_per_s,
        chunk_tokens=CHUNK_TOKENS,
        decode_step_s=model.weight_bytes / bytes_per_s + LAUNCH_S + all_reduce_s,
        decode_request_s=token_s + REQUEST_S,
        decode_context_token_s=model.kv_bytes_per_token / bytes_per_s,
        max_running=MAX_RUNNING,
        kv_bytes_per_token=model.kv_bytes_per_token,
        host_bytes_per_s=n * device.host_bytes_per_s * TRANSFER,
        host_latency_s=0.002,
        remote_bytes_per_s=n * device.network_bytes_per_s * TRANSFER,
        remote_latency_s=0.005,
        kv_tokens=kv_tokens,
        start_s=START_S + model.weight_bytes / WEIGHTS_BYTES_PER_S,
    )


def _kv_tokens(device: Accelerator, model: ModelShape, n: int) -> int:
    room = n * (device.memory_bytes * USABLE - WORKSPACE_BYTES) - model.weight_bytes
    return int(room / model.kv_bytes_per_token)


def least_count(accelerator: str, model: str) -> int:
    """The fewest accelerators, a power of two, on which there is room."""
    count = 1
    while _kv_tokens(ACCELERATORS[accelerator], MODELS[model], count) < LEAST_KV_TOKENS:
        count *= 2
    return count
