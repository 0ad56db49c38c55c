"""Conversations on real vLLM whose devices are too small for them: every turn loads what any engine had computed.

The gateway's own app answers, over two workers on two nodes.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from cluster.engines.vllm_engine import VllmEngine, kv_fingerprint
from cluster.gateway.settings import GatewaySettings
from cluster.models.tiny import ensure_tiny_llama
from routing.router import Decision
from tests.contracts.engine_vllm import KIND, tiny_settings
from tests.engine.asking import DEADLINE_S, new_prompt
from tests.gateway.requests import events
from tests.support.serving import plain_answers
from tests.support.store_thread import SECRET, StoreThread, over_tcp, running_store
from tests.support.two_nodes import WORKERS, Shape, TwoNodes, two_nodes

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]

BLOCK = KIND.block_size
SHAPE = Shape(BLOCK, max_model_len=1024, device_blocks=1024 // BLOCK + 4)
TURNS, FIRST, NEW, ANSWER = 6, 600, 40, 24


@dataclass(frozen=True, slots=True)
class Turn:
    """What was asked and what came back."""

    prompt: list[int]
    answer: list[int]
    cached_tokens: int
    loaded_blocks: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class Gateway:
    """A client of the whole."""

    nodes: TwoNodes
    client: httpx.AsyncClient

    async def ask(self, worker: str, prompt: list[int], stream: bool) -> Turn:
        self.nodes.router.to = worker
        before = self.nodes.counter(worker, "loaded_blocks")
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": ANSWER,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "stream": stream,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        }
        answered = await self.client.post("/v1/completions", json=body, timeout=DEADLINE_S)
        assert answered.status_code == 200, answered.text
        parts = events(answered.text) if stream else [answered.json()]
        tokens = [token for part in parts for choice in part["choices"] for token in choice["token_ids"]]
        (usage,) = [part["usage"] for part in parts if part.get("usage")]
        await self.nodes.settle(worker, prompt + tokens)
        loaded = self.nodes.counter(worker, "loaded_blocks") - before
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Turn(prompt, tokens, cached, loaded, self.nodes.router.decisions[-1])


async def start_engine(store: StoreThread, core: int) -> VllmEngine:
    settings = tiny_settings(store.socket_name, SECRET, core, num_gpu_blocks_override=SHAPE.device_blocks)
    return await VllmEngine.create(replace(settings, max_model_len=SHAPE.max_model_len))


@asynccontextmanager
async def running_gateway(stores: Sequence[StoreThread]) -> AsyncIterator[Gateway]:
    from cluster.gateway.app import build_gateway_app

    model = str(ensure_tiny_llama())
    engines = [await start_engine(store, core) for core, store in enumerate(stores)]  # which holds up this loop
    async with two_nodes(model, engines, stores, SHAPE) as nodes:
        settings = GatewaySettings(model, "tiny", 1 << 20, max_model_len=SHAPE.max_model_len)
        app: Any = await build_gateway_app(settings, nodes.coordinator, nodes.metrics)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            yield Gateway(nodes, client)


@pytest.fixture(scope="module")
def stores() -> Iterator[Sequence[StoreThread]]:
    mark = kv_fingerprint(tiny_settings("", b"", 0)).digest()
    with running_store(mark, transport=over_tcp) as first, running_store(mark, transport=over_tcp) as second:
        yield first, second


async def converse(gateway: Gateway, worker_of_turn: Sequence[str]) -> list[Turn]:
    """Two conversations whose turns take turns, so that each crowds the other out of the device."""
    contexts = [new_prompt(FIRST), new_prompt(FIRST)]
    turns: list[Turn] = []
    for number, worker in enumerate(worker_of_turn):
        for which, context in enumerate(contexts):
            prompt = context + new_prompt(NEW) if number else context
            turn = await gateway.ask(worker, prompt, stream=(number + which) % 2 == 0)
            contexts[which] = prompt + turn.answer
            turns.append(turn)
            held = len(context) - 1 if number else 0  # the last token of an answer was never fed to an engine
            assert turn.cached_tokens == held // BLOCK * BLOCK
            assert (turn.loaded_blocks > 0) == (number > 0)
    return turns


async def test_every_turn_loads_what_any_engine_had_computed(stores: Sequence[StoreThread]) -> None:
    async with running_gateway(stores) as gateway:
        staying = await converse(gateway, [WORKERS[0]] * TURNS)
        moving = await converse(gateway, [*WORKERS] * (TURNS // 2))
    assert all(turn.decision.fetch is None for turn in staying)
    assert all(turn.decision.fetch is not None for turn in moving[2:])
    turns = [*staying, *moving]
    sampling = {"temperature": 0.0, "max_tokens": ANSWER, "ignore_eos": True}
    requests = [{"token_ids": turn.prompt, "sampling": sampling} for turn in turns]
    args = {"block_size": BLOCK, "max_num_batched_tokens": 256, "max_model_len": 1024, "enforce_eager": True}
    plain = plain_answers(str(ensure_tiny_llama()), requests, args)
    assert [turn.answer for turn in turns] == [answer["cold"]["token_ids"] for answer in plain]
    for store in stores:
        store.look(lambda held: held.check())
        assert store.look(lambda held: held.slot_statistics().pins) == 0
