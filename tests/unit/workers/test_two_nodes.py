"""Conversations that move between two nodes, on simulated engines: what one node computed, the other fetches.

The tokens of a simulated engine depend on every byte of its blocks.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cluster.coordinator.workers import GenerationRequest
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import StoreAccess
from tests.support.store_thread import SECRET, StoreThread, over_tcp, running_store
from tests.support.two_nodes import SLOW_S, WORKERS, Shape, TwoNodes, two_nodes
from tests.unit.engines.simulated.bench import prompt_of, reference, settings, write_model

BLOCK, ANSWER, NEW = 16, 20, 30
SHAPE = Shape(BLOCK, max_model_len=512, device_blocks=36)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@asynccontextmanager
async def running(model: Path, token_s: float = SLOW_S) -> AsyncIterator[tuple[TwoNodes, Sequence[StoreThread]]]:
    mark = kv_fingerprint(settings(model)).digest()
    with running_store(mark, transport=over_tcp) as first, running_store(mark, transport=over_tcp) as second:
        stores = (first, second)
        engines = [
            await SimulatedEngine.create(
                settings(model, device_blocks=SHAPE.device_blocks, store=StoreAccess(store.socket_name, SECRET))
            )
            for store in stores
        ]
        async with two_nodes(str(model), engines, stores, SHAPE, token_s) as nodes:
            yield nodes, stores
        for store in stores:
            store.look(lambda held: held.check())
            assert store.look(lambda held: held.slot_statistics().pins) == 0


async def ask(nodes: TwoNodes, worker: str, prompt: list[int]) -> tuple[list[int], int]:
    """The answer of a worker, and how many tokens of the prompt were not computed for it."""
    nodes.router.to = worker
    tokens, cached = await answer_of(nodes, prompt)
    await nodes.settle(worker, prompt + tokens)
    return tokens, cached


async def answer_of(nodes: TwoNodes, prompt: list[int]) -> tuple[list[int], int]:
    """The same, wherever the router sends it."""
    sampling = msgspec.msgpack.encode({"max_tokens": ANSWER, "temperature": 0.0, "ignore_eos": True})
    tokens: list[int] = []
    cached = 0
    async for deltas in nodes.coordinator.generate(GenerationRequest("r", prompt, sampling, ANSWER)):
        for delta in deltas:
            tokens += delta.token_ids
            cached = cached if delta.num_cached_tokens is None else delta.num_cached_tokens
    return tokens, cached


async def converse(nodes: TwoNodes, model: Path, workers: Sequence[str]) -> None:
    """Two conversations, whose turns crowd each other out of the devices."""
    used = settings(model)
    contexts = [prompt_of(200, seed) for seed in (1, 2)]
    for number, worker in enumerate(workers):
        for which, context in enumerate(contexts):
            prompt = context + prompt_of(NEW, 10 * number + which) if number else context
            answer, cached = await ask(nodes, worker, prompt)
            assert answer == reference(used, prompt, ANSWER)
            assert cached == ((len(context) - 1) // BLOCK * BLOCK if number else 0)
            contexts[which] = prompt + answer


async def test_a_conversation_that_moves_between_nodes_computes_only_what_is_new(model: Path) -> None:
    async with running(model) as (nodes, _):
        await converse(nodes, model, [*WORKERS, *WORKERS, *WORKERS])
        assert all(decision.fetch is not None for decision in nodes.router.decisions[2:])
        assert all(nodes.counter(worker, "fetches_ready") > 0 for worker in WORKERS)
        assert all(nodes.counter(worker, "recomputed_blocks_corrupt") == 0 for worker in WORKERS)


async def test_a_conversation_that_stays_loads_from_its_own_node(model: Path) -> None:
    async with running(model) as (nodes, _):
        await converse(nodes, model, [WORKERS[0]] * 6)
        assert all(decision.fetch is None for decision in nodes.router.decisions)
        assert nodes.counter(WORKERS[0], "loaded_blocks") > 0


async def test_equal_prompts_at_once_are_computed_on_one_node_and_loaded_on_the_other(model: Path) -> None:
    async with running(model, token_s=0.002) as (nodes, _):
        nodes.router.to = None
        prompt = prompt_of(300, 7)
        answers = await asyncio.gather(*(answer_of(nodes, prompt) for _ in range(8)))
        wanted = reference(settings(model), prompt, ANSWER)
        assert [tokens for tokens, _ in answers] == [wanted] * 8
        waited = [decision for decision in nodes.router.decisions if decision.coming is not None]
        assert waited
        assert len({decision.coming.replica_id for decision in waited if decision.coming is not None}) == 1
        assert sum(cached == 0 for _, cached in answers) == 1
        text = nodes.metrics.render().decode()
        assert f'baton_awaited_total{{arrival="there"}} {len(waited):.1f}' in text


async def test_blocks_that_have_gone_meanwhile_are_computed(model: Path) -> None:
    """The gateway has not heard of it yet: nothing is there to be fetched, and the prompt is computed."""
    async with running(model) as (nodes, stores):
        prompt = prompt_of(300, 5)
        await ask(nodes, WORKERS[0], prompt)
        stores[0].look(lambda held: held.distrust(held.readable()))
        answer, cached = await ask(nodes, WORKERS[1], prompt)
        assert (answer, cached) == (reference(settings(model), prompt, ANSWER), 0)
        assert nodes.counter(WORKERS[1], "fetches_absent") == 1
