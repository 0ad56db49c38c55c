"""Engines around real stores: every byte goes through a real arena and a real socket."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.dataplane.frames import Delta
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.faults import Faults
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.server import StoreServer
from kvtransfer.settings import DiskSettings, StoreSettings
from kvtransfer.tenant import tenant_of
from kvtransfer.transports.loopback import LoopbackNetwork
from tests.unit.engines.simulated.bench import (
    clear_prefix_cache,
    has_store,
    held_blocks,
    prompt_of,
    reference,
    request,
    run,
    settings,
)

SECRET = b"secret"
_names = (f"baton-test-simulated-{os.getpid()}-{number}" for number in itertools.count())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


class Node:
    """One node: its store, and the engines that were started on it."""

    def __init__(self, model: Path, network: LoopbackNetwork, slots: int, **limits: Any) -> None:
        self.settings = settings(model)
        self.socket_name = next(_names)
        self.network = network
        self._stored = StoreSettings(slots * self.settings.block_bytes, self.socket_name, **limits)
        self.engines: list[SimulatedEngine] = []

    async def start_store(self) -> None:
        fingerprint = kv_fingerprint(self.settings).digest()
        self.server = StoreServer(self._stored, SECRET, fingerprint, self.network.open())
        await self.server.start()

    async def engine(self, **changes: Any) -> SimulatedEngine:
        access = StoreAccess(self.socket_name, SECRET, retry_s=0.01)
        made = await SimulatedEngine.create(settings(self.settings.model_path, store=access, **changes))
        self.engines.append(made)
        return made

    async def client(self) -> AsyncStoreClient:
        return await AsyncStoreClient.connect(self.socket_name, kv_fingerprint(self.settings).digest(), "test", SECRET)

    async def prefill(self, engine: SimulatedEngine, prompt: list[int], handoff_id: str = "h") -> str:
        """Run a prefill leg and wait for the hand-off as a decode worker does; returns its outcome."""
        await run(engine, request("prefill", prompt, handoff_id=handoff_id, max_tokens=1))
        client = await self.client()
        ended = await client.await_handoff(handoff_id, None, 5.0)
        await client.close()
        return ended.outcome

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()
        await self.server.close()


@asynccontextmanager
async def running_node(
    model: Path, network: LoopbackNetwork | None = None, slots: int = 512, **limits: Any
) -> AsyncIterator[Node]:
    node = Node(model, network or LoopbackNetwork(), slots, **limits)
    await node.start_store()
    try:
        yield node
    finally:
        await node.close()


@pytest.fixture
async def node(model: Path) -> AsyncIterator[Node]:
    async with running_node(model) as made:
        yield made


def right(used: SimulatedSettings, prompt: list[int], answer: Delta) -> bool:
    return answer.token_ids == reference(used, prompt, len(answer.token_ids))


def cost(answer: Delta) -> tuple[int, int, str]:
    assert answer.report is not None
    return answer.report.loaded_blocks, answer.report.recomputed_blocks, answer.report.recompute_reason


async def decode(engine: SimulatedEngine, prompt: list[int], expected_blocks: int, reason: Any = "evicted") -> Delta:
    leg = replace(request("decode", prompt, max_tokens=20), expected_blocks=expected_blocks, missing_reason=reason)
    return await run(engine, leg)


async def test_decode_computes_no_more_than_the_partial_last_block(node: Node) -> None:
    prefill, decoder = await node.engine(), await node.engine()
    for length in (10, 16, 17, 100, 400):
        prompt = prompt_of(length, first=length)
        assert await node.prefill(prefill, prompt, str(length)) == "ready"
        before = decoder.statistics().counters.get("computed_prompt_tokens", 0)
        answer = await decode(decoder, prompt, length // 16)
        assert right(node.settings, prompt, answer)
        whole = length // 16
        assert (answer.num_cached_tokens, cost(answer)) == (min(16 * whole, length - 1), (whole, 0, ""))
        assert decoder.statistics().counters["computed_prompt_tokens"] - before == max(1, length - 16 * whole)
    await until(lambda: held_blocks(prefill) == held_blocks(decoder) == 0)


async def test_hand_offs_at_concurrency_sixty_four_give_the_tokens_of_the_reference(node: Node) -> None:
    prefill, decoder = await node.engine(), await node.engine(device_blocks=1024)
    prompts = [prompt_of(20 + index, first=index) for index in range(64)]

    async def both_legs(index: int) -> Delta:
        await node.prefill(prefill, prompts[index], str(index))
        return await decode(decoder, prompts[index], len(prompts[index]) // 16)

    answers = await asyncio.gather(*map(both_legs, range(64)))
    assert all(right(node.settings, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True))
    assert decoder.statistics().counters["loaded_blocks"] == sum(len(prompt) // 16 for prompt in prompts)


async def test_blocks_are_committed_chunk_by_chunk_before_the_first_token(node: Node) -> None:
    engine = await node.engine(max_batched_tokens=32, prefill_tokens_per_s=2000.0)
    leg = asyncio.ensure_future(run(engine, request("one", prompt_of(200), handoff_id="h", max_tokens=1)))
    await until(lambda: engine.statistics().counters.get("saved_blocks", 0) > 0)
    assert engine.statistics().counters.get("tokens", 0) == 0
    await leg
    await until(lambda: engine.statistics().counters["saved_blocks"] == 12)


async def test_a_hand_off_crosses_from_one_store_to_another(model: Path) -> None:
    network, prompt = LoopbackNetwork(), prompt_of(100)
    async with running_node(model, network) as here, running_node(model, network) as there:
        prefill, decoder = await here.engine(), await there.engine()
        client = await there.client()
        waiting = asyncio.ensure_future(client.await_handoff("h", here.server.address, 5.0))
        await here.prefill(prefill, prompt)
        assert (await waiting).pulled_blocks == 6
        answer = await decode(decoder, prompt, 6)
        assert right(here.settings, prompt, answer)
        assert cost(answer) == (6, 0, "")
        await client.close()


async def test_a_corrupt_block_is_computed_again_and_forgotten_by_the_store(node: Node) -> None:
    prefill, decoder = await node.engine(faults=Faults(corrupt_commits=1)), await node.engine()
    prompt = prompt_of(100)
    await node.prefill(prefill, prompt)
    answer = await decode(decoder, prompt, 6)
    assert right(node.settings, prompt, answer)
    assert cost(answer) == (0, 6, "corrupt")
    assert decoder.statistics().counters["recomputed_blocks_corrupt"] == 6
    client = await node.client()
    statistics = await client.statistics()
    assert (statistics.distrusted_blocks, statistics.pins) == (1, 0)
    await client.close()


async def test_without_verification_a_corrupt_block_gives_wrong_tokens(node: Node) -> None:
    prefill = await node.engine(faults=Faults(corrupt_commits=1))
    decoder = await node.engine(faults=Faults(verify=False))
    prompt = prompt_of(100)
    await node.prefill(prefill, prompt)
    answer = await decode(decoder, prompt, 6)
    assert cost(answer) == (6, 0, "")
    assert not right(node.settings, prompt, answer)


async def test_a_block_that_is_never_committed_is_computed_with_all_after_it(node: Node) -> None:
    prefill, decoder = await node.engine(faults=Faults(withhold_block=2)), await node.engine()
    prompt = prompt_of(100)
    assert await node.prefill(prefill, prompt) == "failed"
    answer = await decode(decoder, prompt, 6, "failed")
    assert right(node.settings, prompt, answer)
    assert cost(answer) == (2, 4, "failed")


async def test_when_loads_are_dropped_everything_is_computed(node: Node) -> None:
    prefill, decoder = await node.engine(), await node.engine(faults=Faults(drop_loads=True))
    prompt = prompt_of(100)
    await node.prefill(prefill, prompt)
    answer = await decode(decoder, prompt, 6)
    assert right(node.settings, prompt, answer)
    assert cost(answer) == (0, 6, "failed")


async def test_the_next_turn_finds_the_blocks_another_engine_decoded(node: Node) -> None:
    first, second = await node.engine(), await node.engine()
    prompt = prompt_of(40)
    answer = await run(first, request("turn one", prompt, max_tokens=60))
    await until(lambda: held_blocks(first) == 0)
    conversation = prompt + answer.token_ids
    follow_up = await run(second, request("turn two", conversation))
    assert follow_up.num_cached_tokens == 96
    assert right(node.settings, conversation, follow_up)


async def test_what_the_device_evicted_is_loaded_again(node: Node) -> None:
    engine = await node.engine(device_blocks=32)
    await run(engine, request("one", prompt_of(200, first=1)))
    await run(engine, request("two", prompt_of(500, first=2)))
    again = await run(engine, request("three", prompt_of(200, first=1)))
    assert (again.num_cached_tokens, cost(again)) == (192, (12, 0, ""))
    assert right(node.settings, prompt_of(200, first=1), again)


async def test_a_cached_prompt_is_committed_like_a_computed_one(node: Node) -> None:
    prefill, decoder = await node.engine(), await node.engine()
    prompt = prompt_of(100)
    await node.prefill(prefill, prompt, "first")
    await node.server.close()
    await node.start_store()
    await until(lambda: prefill.statistics().counters["store_lost"] == decoder.statistics().counters["store_lost"] == 1)
    await until(lambda: has_store(prefill) and has_store(decoder))
    assert await node.prefill(prefill, prompt, "second") == "ready"
    assert cost(await decode(decoder, prompt, 6)) == (6, 0, "")


async def test_a_lost_store_costs_time_but_no_request(node: Node) -> None:
    engine = await node.engine()
    prompt = prompt_of(300)
    stream = engine.generate(request("one", prompt, max_tokens=100))
    tokens = (await anext(stream)).token_ids
    await node.server.close()
    async for delta in stream:
        tokens += delta.token_ids
    assert tokens == reference(node.settings, prompt, 100)
    assert right(node.settings, prompt_of(90), await run(engine, request("two", prompt_of(90))))
    await until(lambda: held_blocks(engine) == 0)
    await node.start_store()


async def test_a_full_store_is_counted_and_harms_nobody(model: Path) -> None:
    async with running_node(model, slots=4) as node:
        prefill, decoder = await node.engine(), await node.engine()
        prompt = prompt_of(200)
        assert await node.prefill(prefill, prompt) == "failed"
        assert right(node.settings, prompt, await decode(decoder, prompt, 12, "full"))
        assert prefill.statistics().counters["no_room_blocks"] > 0


async def test_closing_a_request_while_it_loads_leaves_nothing_held(node: Node) -> None:
    prefill, decoder = await node.engine(), await node.engine()
    prompt = prompt_of(300)
    await node.prefill(prefill, prompt)
    for turns in range(12):
        reading = asyncio.ensure_future(anext(decoder.generate(request("one", prompt, max_tokens=200))))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await until(lambda: held_blocks(decoder) == 0)
        clear_prefix_cache(decoder)
        decoder.check()
    assert right(node.settings, prompt, await decode(decoder, prompt, 18))
    client = await node.client()
    await until(lambda: held_blocks(decoder) == 0)
    assert (await client.statistics()).pins == 0
    await client.close()


async def test_a_tenant_reads_no_block_of_another_from_the_store(node: Node) -> None:
    prompt = prompt_of(100)
    writer, reader = await node.engine(), await node.engine()
    await run(writer, replace(request("a", prompt, handoff_id="h", max_tokens=1), cache_salt="a"))
    await until(lambda: node.server.store._slots._shares.held(tenant_of("a")) == 100 // node.settings.block_size)
    for salt, blocks in (("b", 0), (None, 0), ("a", 99 // node.settings.block_size)):
        answer = await run(reader, replace(request(f"to {salt}", prompt, max_tokens=5), cache_salt=salt))
        assert cost(answer)[0] == blocks
        clear_prefix_cache(reader)


async def test_a_prompt_that_went_to_disk_is_loaded_again_and_by_nobody_under_another_salt(
    model: Path, tmp_path: Path
) -> None:
    disk = DiskSettings(str(tmp_path), 10_000_000, recall_s=5.0)
    async with running_node(model, slots=14, disk=disk, high_watermark=0.5, low_watermark=0.3) as node:
        engine, store, prompt = await node.engine(), node.server.store, prompt_of(100)
        blocks = len(prompt) // node.settings.block_size
        await until(lambda: store.disk is not None)

        async def answer(salt: str, asked: list[int], committed: int) -> int:
            """Blocks loaded; returns when the new ones are in the store and those that leave have left."""
            clear_prefix_cache(engine)
            given = await run(engine, replace(request(f"of {salt}", asked, max_tokens=1), cache_salt=salt))
            await until(lambda: store.slot_statistics().committed_blocks >= committed)
            await until(lambda: not store.crowding and not store._leaving)
            return cost(given)[0]

        assert await answer("a", prompt, blocks) == 0
        assert await answer("a", prompt_of(100, 8), 2 * blocks) == 0
        assert not all(store.is_in_arena(key) for key in store.readable())
        assert await answer("b", prompt, 3 * blocks) == 0
        assert await answer("a", prompt, 0) == blocks
