"""The gateway's index beside what a real vLLM finds in its own cache, through evictions, resets and restarts.

The engine's cache is in another process and is asked by requests: how much of a prompt it finds (`num_cached_tokens`)
is compared, block by block, with what the index said just before. Stores are read directly; hashes are computed here.
"""

import asyncio
import hashlib
import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import WorkerInfo
from cluster.dataplane.pool import WorkerPool
from cluster.engines.vllm_engine import VllmEngine, kv_fingerprint
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.workers.store_link import StoreLink
from cluster.workers.worker import Worker, WorkerSettings
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.connector.layout import SlotLayout
from routing.block_keys import extend, root
from routing.index_blocks import BlockIndex
from tests.contracts.engine_pair import sampling
from tests.contracts.engine_vllm import KIND, tiny_settings
from tests.engine.asking import DEADLINE_S, new_prompt
from tests.engine.conftest import DEVICE_BLOCKS
from tests.support.store_thread import SECRET, StoreThread, running_store
from tests.unit.dataplane.peers import MODEL, pool_settings
from tests.unit.dataplane.peers import SECRET as GATEWAY_SECRET

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

BLOCK = KIND.block_size
FIRST_PARENT = hashlib.sha256(pickle.dumps("vllm-none-hash", pickle.HIGHEST_PROTOCOL)).digest()


class Watched:
    """A worker on a real engine, and a gateway's index of it."""

    def __init__(self, engine: VllmEngine, pool: WorkerPool, index: BlockIndex) -> None:
        self.engine, self.pool, self.index = engine, pool, index
        self.key_of: dict[bytes, int] = {}

    async def ask(self, prompt: list[int], salt: str | None = None, max_tokens: int = 1) -> int:
        """How many of the prompt's tokens the engine had."""
        params = sampling(max_tokens=max_tokens)
        request = GenerationRequest("r", prompt, params, max_tokens=max_tokens, cache_salt=salt)
        stream = self.pool.open("w1", Leg("decode", request, params, None, DEADLINE_S))
        cached, tokens = 0, list(prompt)
        while stream.open:
            for delta in await stream.next():
                cached = cached if delta.num_cached_tokens is None else delta.num_cached_tokens
                tokens += delta.token_ids
        self.learn(tokens, salt)
        return cached

    def learn(self, tokens: list[int], salt: str | None) -> None:
        parent, keys = FIRST_PARENT, extend(root(salt, None), tokens, BLOCK)
        for number, key in enumerate(keys):
            extra = (("cache_salt", salt),) if salt is not None and number == 0 else None
            block = (parent, tuple(tokens[number * BLOCK : (number + 1) * BLOCK]), extra)
            parent = hashlib.sha256(pickle.dumps(block, pickle.HIGHEST_PROTOCOL)).digest()
            self.key_of[parent] = key

    def known(self, prompt: Sequence[int], salt: str | None = None) -> int:
        """Tokens of the prompt that lie on the device, as the index says."""
        found = self.index.longest_prefix(extend(root(salt, None), prompt, BLOCK), 0.0)
        return found.device.get("w1", 0) * BLOCK

    def on_host(self) -> set[int]:
        """Every known block in the node's host tier."""
        keys = set(self.key_of.values())
        return {key for key in keys if self.index.longest_prefix([key], 0.0).stores}

    async def heard(self) -> None:
        """All events so far have come: events come in order, and those of this prompt are the last."""
        prompt = new_prompt(BLOCK + 1)
        await self.ask(prompt)
        await until(lambda: self.known(prompt) == BLOCK)

    async def host_is(self, store: StoreThread) -> None:
        """Return when the index holds what the store does."""
        await until(lambda: self.on_host() == self.in_store(store))

    def in_store(self, store: StoreThread) -> set[int]:
        """Every block the store can give to read."""
        return {self.key_of[key] for key in store.look(lambda it: it.readable())}

    async def reset(self) -> None:
        await self.engine.forget_cached()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # neither the index nor a store announces anything to a test
            await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(store: StoreThread | None) -> AsyncIterator[Watched]:
    """One life of an engine."""
    socket_name = store.socket_name if store is not None else "no-such-store"
    engine = await VllmEngine.create(tiny_settings(socket_name, SECRET, 0, num_gpu_blocks_override=DEVICE_BLOCKS))
    link = None
    if store is not None:
        link = StoreLink(
            lambda: AsyncStoreClient.connect(store.socket_name, store.fingerprint, "worker", SECRET, DEADLINE_S)
        )
        await link.start()
    info = WorkerInfo("w1", "decode", "node", "vllm", "", "kv", BLOCK, 2048, "1", engine.kv_blocks)
    worker = Worker(WorkerSettings(info, GATEWAY_SECRET, MODEL, "127.0.0.1"), engine, link)
    address = await worker.start()
    index = BlockIndex()
    try:
        async with WorkerPool(pool_settings(), KvIndexFeed(index)) as pool:
            pool.update({"w1": address})
            await pool.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), DEADLINE_S)
            yield Watched(engine, pool, index)
    finally:
        await worker.close()


async def test_the_index_says_of_every_prompt_what_the_engine_then_finds() -> None:
    rng = Random(1)
    stems = [new_prompt(8 * BLOCK) for _ in range(4)]
    prompts = [
        [*rng.choice(stems)[: rng.randrange(9) * BLOCK], *new_prompt(rng.randrange(6) * BLOCK + 1)] for _ in "x" * 12
    ]
    async with watched(None) as here:
        assert here.pool.fleet().replicas["w1"].kv_blocks == DEVICE_BLOCKS - 1
        found: list[int] = []
        for round_number in range(60):
            prompt, salt = rng.choice(prompts), rng.choice([None, None, "pepper"])
            await here.heard()
            said = here.known(prompt, salt)
            found.append(await here.ask(prompt, salt, max_tokens=rng.randrange(1, 40)))
            assert found[-1] == said, f"round {round_number}"
            if round_number == 40:
                await here.reset()
                await here.heard()
                assert [here.known(each) for each in prompts] == [0] * len(prompts)
        assert here.index.statistics().places <= DEVICE_BLOCKS - 1
        assert max(found) >= 8 * BLOCK
        here.index.check()


async def test_the_host_tier_is_what_the_store_holds_through_evictions_a_reset_and_a_restart() -> None:
    slots = 24
    fingerprint = kv_fingerprint(tiny_settings("", b"", 0))
    with running_store(fingerprint.digest(), slots * SlotLayout.of(fingerprint).slot_bytes) as store:
        async with watched(store) as here:
            prompts = [new_prompt(5 * BLOCK + 1) for _ in range(8)]
            for prompt in prompts:
                await here.ask(prompt, max_tokens=40)
                await here.host_is(store)
            assert store.look(lambda it: it.slot_statistics().evicted_blocks) > 0
            await here.reset()
            await here.heard()
            await here.host_is(store)
            assert (here.known(prompts[-1]), len(here.on_host())) == (0, slots)
        async with watched(store) as again:
            again.key_of = here.key_of
            await again.host_is(store)
            assert again.known(prompts[-1]) == 0
            assert await again.ask(prompts[-1]) == 5 * BLOCK
            await again.heard()
            assert again.known(prompts[-1]) == 5 * BLOCK
            await again.host_is(store)
