"""Simulated engines for the contract suite: what its fixture needs to start a store and engines on it."""

from pathlib import Path

from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from kvtransfer.fingerprint import KvFingerprint
from tests.support.store_thread import SECRET


def settings(model: Path, store_socket: str | None = None) -> SimulatedSettings:
    """A small engine that takes a few milliseconds a step. `model` is any folder with a tokenizer."""
    return SimulatedSettings(
        model_path=model,
        model_digest="contract",
        max_model_len=512,
        device_blocks=256,
        max_batched_tokens=64,
        prefill_tokens_per_s=50_000.0,
        decode_step_s=0.002,
        step_deadline_s=5.0,
        store=StoreAccess(store_socket, SECRET) if store_socket is not None else None,
    )


def fingerprint(model: Path) -> KvFingerprint:
    """What the store these engines use is started with."""
    return kv_fingerprint(settings(model))


async def create(model: Path, store_socket: str | None = None) -> SimulatedEngine:
    """An engine that is ready to serve."""
    return await SimulatedEngine.create(settings(model, store_socket))
