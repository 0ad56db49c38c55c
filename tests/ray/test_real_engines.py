"""Real vLLM, one prefill and one decode worker, the demo model: answers equal a plain engine's, block by block."""

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.driver import eventually
from tests.support.prompts import lengths, prompt_of
from tests.support.serving import Served, TestCluster, config_of, plain_answers

pytestmark = [pytest.mark.ray, pytest.mark.engine, pytest.mark.timeout(900)]

BLOCK = 32
TIE = 0.26  # natural logarithms: one step of bfloat16 at the size of these logits
GREEDY = {"temperature": 0.0, "max_tokens": 16, "logprobs": 20}
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 1234, "max_tokens": 16}


def full_blocks(tokens: int) -> int:
    """Tokens of the whole blocks a prompt hands over: the last token is always computed where it is sampled."""
    return (tokens - 1) // BLOCK * BLOCK


@pytest.fixture(scope="module")
def prompts(demo_model: str) -> list[list[int]]:
    return [prompt_of(demo_model, tokens, number) for number, tokens in enumerate(lengths(20, 10, 1800))]


@pytest.fixture(scope="module")
def requests(prompts: list[list[int]]) -> list[dict[str, Any]]:
    greedy = [{"token_ids": ids, "sampling": GREEDY} for ids in prompts]
    sampled = [{"token_ids": ids, "sampling": SAMPLED} for ids in prompts[::4]]
    return greedy + sampled


@pytest.fixture(scope="module")
def expected(demo_model: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of a plain engine; made before the workers start, so that it has the cores to itself."""
    args = {"block_size": BLOCK, "max_num_batched_tokens": 256, "max_model_len": 4096, "enforce_eager": True}
    return plain_answers(demo_model, requests, args)


@pytest.fixture(scope="module", params=["one node", "two nodes"])
def served(
    request: pytest.FixtureRequest, cluster: TestCluster, demo_model: str, expected: list[dict[str, Any]]
) -> Iterator[Served]:
    """The laptop preset; once with both workers on node a, once with decode on node b and TCP between the stores."""
    decode_node = "a" if request.param == "one node" else "b"
    config = config_of(
        "laptop.yaml",
        model={"path": demo_model},
        prefill={"label_selector": {"node": "a"}},
        decode={"label_selector": {"node": decode_node}},
        store={"bytes": "512MiB"},
        router={"policy": "least_work"},  # which always splits
    )
    with cluster.serve(config) as running:
        yield running


def test_answers_equal_a_plain_engine_and_decode_computes_only_the_partial_last_block(
    served: Served, requests: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    for number, (request, plain) in enumerate(zip(requests, expected, strict=True)):
        ids, warm = request["token_ids"], plain["warm"]
        answer = served.complete(ids, **request["sampling"])
        choice, where = answer["choices"][0], f"prompt {number} of {len(ids)} tokens"
        assert choice["token_ids"] == warm["token_ids"], where
        assert cached_tokens(answer) >= full_blocks(len(ids)), where
        if "logprobs" in request["sampling"]:
            chosen = [position[str(i)] for position, i in zip(warm["logprobs"], warm["token_ids"], strict=True)]
            assert choice["logprobs"]["token_logprobs"] == pytest.approx(chosen, abs=1e-3), where
            assert_equal_but_for_ties(choice["token_ids"], plain["cold"], where)


def assert_equal_but_for_ties(ours: list[int], cold: dict[str, Any], where: str) -> None:
    """Equal to an engine with an empty cache, up to the first position where its own candidates tie in bfloat16."""
    for ours_id, cold_id, position in zip(ours, cold["token_ids"], cold["logprobs"], strict=True):
        if ours_id != cold_id:
            assert position[str(cold_id)] - position.get(str(ours_id), -math.inf) < TIE, where
            return


def cached_tokens(answer: dict[str, Any]) -> int:
    """Prompt tokens that decode did not compute; vLLM leaves the details out when there are none."""
    return int((answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0))


def test_blocks_really_move_and_are_loaded(served: Served, demo_model: str, request: pytest.FixtureRequest) -> None:
    blocks = full_blocks(500) // BLOCK
    crossing = blocks if request.node.callspec.params["served"] == "two nodes" else 0
    loaded, crossed = served.metric("baton_kv_loaded_blocks_total"), crossed_blocks(served)
    answer = served.complete(prompt_of(demo_model, 500, number=77), temperature=0, max_tokens=2)
    assert cached_tokens(answer) == full_blocks(500)
    assert served.metric("baton_kv_loaded_blocks_total") - loaded == blocks
    eventually(lambda: crossed_blocks(served) - crossed >= crossing, 10.0)  # told with the workers' next reports
    assert crossed_blocks(served) - crossed == crossing


def crossed_blocks(served: Served) -> float:
    """What the stores have pulled from each other over TCP."""
    return served.metric("baton_store_moved_blocks", 'direction="pulled"', 'medium="tcp"')


def test_cached_tokens_agree_in_streamed_and_unary_replies(served: Served, demo_model: str) -> None:
    ids = prompt_of(demo_model, 333, number=91)
    body = {"model": served.model, "prompt": ids, "max_tokens": 4, "temperature": 0, "stream": True}
    usage: dict[str, Any] = {}
    with (
        served.client() as client,
        client.stream("POST", "/v1/completions", json={**body, "stream_options": {"include_usage": True}}) as lines,
    ):
        for line in lines.iter_lines():
            if line.startswith("data: {"):
                usage = json.loads(line[6:]).get("usage") or usage
    assert usage["prompt_tokens_details"]["cached_tokens"] == full_blocks(333)


async def test_eight_at_once_all_answer(served: Served, prompts: list[list[int]]) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=300) as client:

        async def one(ids: list[int]) -> dict[str, Any]:
            body = {"model": served.model, "prompt": ids, "max_tokens": 12, "temperature": 0, "return_token_ids": True}
            answer = await client.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        answers = await asyncio.gather(*(one(ids) for ids in prompts[4:12]))
    assert [len(a["choices"][0]["token_ids"]) for a in answers] == [12] * 8


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unary"])
@pytest.mark.parametrize("tokens_first", [False, True], ids=["before the first token", "while decoding"])
async def test_a_client_that_leaves_frees_both_engines(
    served: Served, demo_model: str, stream: bool, tokens_first: bool
) -> None:
    prompt = prompt_of(demo_model, 600 if not tokens_first else 40, number=200 + stream + 2 * tokens_first)
    body = {"model": served.model, "prompt": prompt, "max_tokens": 1500, "ignore_eos": True, "stream": stream}
    generated = served.metric("baton_generated_tokens_total")
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        request = asyncio.create_task(client.post("/v1/completions", json=body))
        while not _under_way(served, generated if tokens_first else None):  # noqa: ASYNC110  (other processes)
            await asyncio.sleep(0.02)
        request.cancel()
        await asyncio.wait({request})
    await served.idle()


def _under_way(served: Served, generated: float | None) -> bool:
    """Whether an engine works on the request; with `generated`, whether more tokens than that have come out."""
    if generated is None:
        return served.metric("baton_worker_running") > 0
    return served.metric("baton_generated_tokens_total") > generated + 2
