"""Blocks pass between engines of different tensor-parallel degree."""

from dataclasses import replace

import pytest

from cluster.engines.vllm_engine import VllmEngine
from tests.contracts.engine_vllm import tiny_settings
from tests.engine.asking import ask, new_prompt
from tests.support.store_thread import SECRET, StoreThread

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]

BLOCK, PROMPT = 32, 300


async def test_blocks_pass_from_one_rank_to_two_and_back(engine: VllmEngine, store: StoreThread) -> None:
    settings = tiny_settings(store.socket_name, SECRET, 0, tensor_parallel_size=2)
    two = await VllmEngine.create(replace(settings, cores=[0, 1]))
    try:
        for producer, consumer in ((engine, two), (two, engine)):
            prompt = new_prompt(PROMPT)
            await ask(producer, prompt, max_tokens=1)
            answer = await ask(consumer, prompt)
            assert answer.report.loaded_blocks == PROMPT // BLOCK
            assert answer.tokens == (await ask(consumer, prompt, cache_salt="computed by itself")).tokens
    finally:
        await two.close()
