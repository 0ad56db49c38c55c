"""Engine operations that no gateway can do: they belong to one engine, and a gateway serves a fleet.

Their HTTP routes are not on the gateway's allow-list; whoever calls the Python method is told so.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from vllm.engine.protocol import EngineClient


class NotOfAFleet(NotImplementedError):
    """The operation addresses a single engine. vLLM's app answers 501."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation} addresses one engine and is not offered by a gateway of many")


class FleetClient(EngineClient):  # type: ignore[misc]  # vllm is not followed by mypy
    """The part of vLLM's `EngineClient` that is refused."""

    def encode(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Pooling models are not served."""
        raise NotOfAFleet("pooling")

    async def notify_kv_transfer_request_rejected(
        self, request_id: str, kv_transfer_params: dict[str, Any], *, data_parallel_rank: int | None = None
    ) -> None:
        """Clients cannot bring KV transfers of their own, so there is nothing to free."""

    async def start_profile(self, *args: Any, **kwargs: Any) -> None:
        raise NotOfAFleet("profiling")

    async def stop_profile(self) -> None:
        raise NotOfAFleet("profiling")

    async def reset_mm_cache(self) -> None:
        raise NotOfAFleet("resetting the multimodal cache")

    async def reset_encoder_cache(self) -> None:
        raise NotOfAFleet("resetting the encoder cache")

    async def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        raise NotOfAFleet("resetting the prefix cache")

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        raise NotOfAFleet("sleep")

    async def wake_up(self, tags: list[str] | None = None) -> bool:
        raise NotOfAFleet("wake-up")

    async def is_sleeping(self) -> bool:
        """A gateway never sleeps."""
        return False

    async def release_kv_cache_memory(self) -> None:
        raise NotOfAFleet("releasing KV memory")

    async def add_lora(self, lora_request: Any) -> bool:
        raise NotOfAFleet("loading a LoRA adapter")

    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        raise NotOfAFleet("pausing")

    async def resume_generation(self) -> None:
        raise NotOfAFleet("resuming")

    async def is_paused(self) -> bool:
        """A gateway cannot be paused."""
        return False

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> NoReturn:
        raise NotOfAFleet("collective RPC")
