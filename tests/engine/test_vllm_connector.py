"""The connector inside a real vLLM: when blocks are committed, and what happens when things go wrong."""

import asyncio
from contextlib import aclosing

import pytest

from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_engine import VllmEngine
from kvtransfer.aclient import AsyncStoreClient
from tests.contracts.engine_pair import sampling
from tests.engine.asking import DEADLINE_S, ask, crowd_out, new_prompt
from tests.engine.conftest import DEVICE_BLOCKS
from tests.support.store_thread import SECRET, StoreThread

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]

BLOCK, CHUNK_BLOCKS, PROMPT = 32, 8, 1500


async def test_blocks_are_committed_chunk_by_chunk_while_prefill_runs(engine: VllmEngine, store: StoreThread) -> None:
    client = await AsyncStoreClient.connect(store.socket_name, store.fingerprint, "watch", SECRET, DEADLINE_S)
    before = (await client.statistics()).committed_blocks
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append((await client.statistics()).committed_blocks - before)

    watcher = asyncio.create_task(watch())
    prompt = new_prompt(PROMPT)
    async with aclosing(engine.generate(EngineRequest("chunks", prompt, sampling(max_tokens=1)))) as deltas:
        await anext(deltas)
        seen_at_first_token = max(seen)
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    assert len(set(seen) & {8, 16, 24, 32, 40}) >= 3
    assert PROMPT // BLOCK - seen_at_first_token <= CHUNK_BLOCKS
    assert (await client.statistics()).committed_blocks - before == PROMPT // BLOCK
    await client.close()


async def test_what_the_device_evicted_comes_back_from_the_store(engine: VllmEngine) -> None:
    prompt = new_prompt(300)
    first = await ask(engine, prompt)
    await crowd_out(engine, DEVICE_BLOCKS * BLOCK)
    again = await ask(engine, prompt)
    assert again.tokens == first.tokens
    assert again.report.loaded_blocks == 300 // BLOCK


async def test_requests_given_up_while_they_load_leave_no_pin(engine: VllmEngine, store: StoreThread) -> None:
    prompt = new_prompt(1200)
    await ask(engine, prompt, max_tokens=1)
    await crowd_out(engine, DEVICE_BLOCKS * BLOCK)
    for pause_s in (0.0, 0.001, 0.003, 0.006, 0.01):
        stream = engine.generate(EngineRequest("given-up", prompt, sampling(max_tokens=1)))
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(pause_s)  # somewhere in matching, loading or computing
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await stream.aclose()
    await ask(engine, prompt)
    assert store.look(lambda held: held.slot_statistics().pins) == 0


async def test_preempted_requests_end_and_leave_no_pin(engine: VllmEngine, store: StoreThread) -> None:
    before = engine.statistics().counters["preemptions"]
    answers = await asyncio.gather(*(ask(engine, new_prompt(500), max_tokens=400) for _ in range(4)))
    assert engine.statistics().counters["preemptions"] > before
    assert [len(answer.tokens) for answer in answers] == [400] * 4
    assert store.look(lambda held: held.slot_statistics().pins) == 0


async def test_prompt_logprobs_are_computed_not_loaded(engine: VllmEngine) -> None:
    prompt = new_prompt(100)
    await ask(engine, prompt)
    request = EngineRequest("prompt-logprobs", prompt, sampling(prompt_logprobs=1))
    deltas = [delta async for delta in engine.generate(request)]
    assert deltas[0].prompt_logprobs is not None
    assert len(deltas[0].prompt_logprobs) == 100
    assert deltas[0].prompt_logprobs[0] is None
    assert deltas[-1].num_cached_tokens == 0


async def test_a_lost_store_costs_only_recomputation(engine: VllmEngine, store: StoreThread) -> None:
    prompt = new_prompt(300)
    first = await ask(engine, prompt)
    await crowd_out(engine, DEVICE_BLOCKS * BLOCK)
    lost = engine.statistics().counters["store_lost"]
    store.kill()
    without = await ask(engine, prompt)
    assert without.tokens == first.tokens
    assert without.report.loaded_blocks == 0
    assert engine.statistics().counters["store_lost"] == lost + 1
    store.start()
    await _until_saved(engine, store)
    assert (await ask(engine, prompt)).tokens == first.tokens


async def _until_saved(engine: VllmEngine, store: StoreThread) -> None:
    """The engine reconnects at most once a second, when it has something to ask."""
    async with asyncio.timeout(DEADLINE_S):
        while not store.look(lambda held: held.slot_statistics().committed_blocks):
            await ask(engine, new_prompt(64), max_tokens=1)
