"""Every setup whose blocks cannot be shared is refused with its reason."""

from dataclasses import replace
from typing import Any

import pytest

from kvtransfer.connector.support import PLAIN, KvTraits, refusal

PLAIN_TRAITS = KvTraits(groups=[PLAIN])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_plain_full_attention_is_accepted(device: str) -> None:
    assert refusal(replace(PLAIN_TRAITS, device=device)) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groups": [PLAIN, "SlidingWindowSpec"]}, "2 groups"),
        ({"groups": ["MambaSpec"]}, "its KV layout is MambaSpec"),
        ({"groups": ["MLAAttentionSpec"]}, "MLAAttentionSpec"),
        ({"groups": []}, "0 groups"),
        ({"sliding_window": 64}, "sliding window of 64 tokens"),
        ({"attention_chunk_size": 8192}, "chunks of 8192 tokens"),
        ({"pipeline_parallel": 4}, "pipeline_parallel_size is 4"),
        ({"context_parallel": 2}, "decode_context_parallel_size is 2"),
        ({"device": "rocm"}, "device rocm"),
        ({"hash_algorithm": "xxhash"}, "prefix_caching_hash_algo is xxhash"),
    ],
)
def test_anything_else_is_refused_by_name(change: dict[str, Any], reason: str) -> None:
    answer = refusal(replace(PLAIN_TRAITS, **change))
    assert answer is not None
    assert reason in answer
