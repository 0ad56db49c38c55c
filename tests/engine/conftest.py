"""One small vLLM engine over a store of its own, for the tests of this folder."""

import warnings
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from cluster.engines.vllm_engine import VllmEngine, kv_fingerprint
from tests.contracts.engine_vllm import tiny_settings
from tests.support.store_thread import SECRET, StoreThread, running_store

DEVICE_BLOCKS = 80
"""Barely more than one longest request: engines here evict and preempt."""


@pytest.fixture(scope="session")
def store() -> Iterator[StoreThread]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fingerprint = kv_fingerprint(tiny_settings("", b"", 0)).digest()
    with running_store(fingerprint) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(store: StoreThread) -> AsyncIterator[VllmEngine]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = tiny_settings(store.socket_name, SECRET, 0, num_gpu_blocks_override=DEVICE_BLOCKS)
        engine = await VllmEngine.create(settings)
        try:
            yield engine
        finally:
            await engine.close()
