"""Which models and setups the connector can serve; everything else is refused at start, with the reason.

Blocks are exchanged whole and by position, which is right only for one group of plain full-attention layers that every
rank has. Knows no vLLM class: the adapters describe what they found.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KvTraits:
    """What an engine says about its KV cache."""

    groups: Sequence[str]  # the class of each KV cache group's spec
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    pipeline_parallel: int = 1
    context_parallel: int = 1
    device: str = "cpu"
    hash_algorithm: str = "sha256"


STABLE_HASHES = ("sha256", "sha256_cbor")
"""vLLM's other algorithms are seeded in each process: their hashes mean nothing elsewhere."""

DEVICES = ("cpu", "cuda")
"""Where a unit's inside is known to depend on nothing that the fingerprint leaves out."""

PLAIN = "FullAttentionSpec"


def refusal(traits: KvTraits) -> str | None:
    """Why blocks of this engine cannot be exchanged, or None when they can."""
    checks = (
        (len(traits.groups) != 1, f"its KV cache has {len(traits.groups)} groups ({', '.join(traits.groups)})"),
        (set(traits.groups) != {PLAIN}, f"its KV layout is {', '.join(traits.groups) or 'absent'}"),
        (traits.sliding_window is not None, f"it attends through a sliding window of {traits.sliding_window} tokens"),
        (traits.attention_chunk_size is not None, f"it attends in chunks of {traits.attention_chunk_size} tokens"),
        (traits.pipeline_parallel > 1, f"pipeline_parallel_size is {traits.pipeline_parallel}"),
        (traits.context_parallel > 1, f"decode_context_parallel_size is {traits.context_parallel}"),
        (traits.device not in DEVICES, f"its KV cache lies on device {traits.device}"),
        (traits.hash_algorithm not in STABLE_HASHES, f"prefix_caching_hash_algo is {traits.hash_algorithm}"),
    )
    reasons = [reason for applies, reason in checks if applies]
    if not reasons:
        return None
    return (
        f"KV blocks of this engine cannot be shared: {'; '.join(reasons)}. Supported: one group of plain full attention"
        f" on {' or '.join(DEVICES)}, no parallelism but tensor parallelism, prefix_caching_hash_algo"
        f" {' or '.join(STABLE_HASHES)}."
    )
