"""What a real engine finds in its environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cluster.engines.vllm_settings import VllmEngineSettings


@pytest.mark.parametrize(
    ("cores", "args", "bound"),
    [
        ([], {}, None),
        ([3], {}, "3"),
        ([0, 1], {}, "0,1"),
        ([0, 1], {"tensor_parallel_size": 2}, "0|1"),
        ([4, 5, 6, 7], {"tensor_parallel_size": 2}, "4,5|6,7"),
    ],
)
def test_each_rank_is_pinned_to_its_part_of_the_cores(
    cores: Sequence[int], args: Mapping[str, Any], bound: str | None
) -> None:
    settings = VllmEngineSettings("model", "socket", b"", args=args, cores=cores)
    assert settings.environment().get("VLLM_CPU_OMP_THREADS_BIND") == bound
