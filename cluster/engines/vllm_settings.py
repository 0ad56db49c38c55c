"""What a real engine is built from. Imports no vLLM, so that the environment can be set before vLLM reads it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class VllmEngineSettings:
    """One engine of one replica.

    `args` are vLLM's own `AsyncEngineArgs`, by name. `cores`: the worker's compute threads are pinned to these;
    empty leaves the choice to vLLM.
    """

    model: str
    store_socket: str  # abstract Unix socket of the node's store
    secret: bytes
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cores: Sequence[int] = ()
    max_model_len: int | None = None
    start_s: float = 600.0
    store_timeout_s: float = 2.0  # of one round trip to the store
    replay_tokens: int = 4096  # tokens sampled once more for an output that cannot go on otherwise

    def environment(self) -> dict[str, str]:
        """What vLLM and its processes must find in their environment."""
        ours = {
            "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",  # events carry whole hashes
            "VLLM_ENGINE_READY_TIMEOUT_S": str(max(1, round(self.start_s))),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_RPC_BASE_PATH": "@baton-vllm",  # its sockets' names are abstract: no files to be left behind
        }
        if self.cores:
            ours["VLLM_CPU_OMP_THREADS_BIND"] = self._cores_by_rank()
        return {**ours, **self.env}

    def _cores_by_rank(self) -> str:
        """Each tensor-parallel worker gets an equal part of the cores, in order; vLLM refuses one without any."""
        ranks = int(self.args.get("tensor_parallel_size", 1))
        share = max(1, len(self.cores) // ranks)
        parts = [self.cores[rank * share : (rank + 1) * share] for rank in range(ranks)]
        return "|".join(",".join(str(core) for core in part) for part in parts)

    def apply_environment(self) -> None:
        """Set it in this process, for good: children read it when they start, and vLLM when it is imported."""
        os.environ.update(self.environment())
