"""Real vLLM engines on the tiny model, one core each."""

from cluster.engines.vllm_engine import VllmEngine, kv_fingerprint
from cluster.engines.vllm_settings import VllmEngineSettings
from cluster.models.tiny import VOCABULARY, ensure_tiny_llama


def tiny_settings(socket_name: str, secret: bytes, core: int, **args: object) -> VllmEngineSettings:
    """Small in every respect: starts fast and leaves memory to others."""
    return VllmEngineSettings(
        model=str(ensure_tiny_llama()),
        store_socket=socket_name,
        secret=secret,
        args={"block_size": 32, "max_num_batched_tokens": 256, "num_gpu_blocks_override": 512, **args},
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        cores=[core],
        max_model_len=2048,
        start_s=120.0,
    )


class VllmKind:
    """See `tests.contracts.engine_kind.EngineKind`."""

    name = "vllm"
    block_size = 32
    vocabulary = VOCABULARY
    max_model_len = 2048
    bytes_of_characters = (130, 105, 175, 256, 249, 225, 161, 231, 243)  # of é, 😀 and →

    def fingerprint(self) -> str:
        return kv_fingerprint(tiny_settings("", b"", 0)).digest()

    async def create(self, socket_name: str, secret: bytes, index: int) -> VllmEngine:
        return await VllmEngine.create(tiny_settings(socket_name, secret, index))


KIND = VllmKind()
