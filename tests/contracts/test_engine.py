"""What every engine does, whoever computes its tokens."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from cluster.engines.engine import EngineRequest
from cluster.errors import InvalidRequest
from tests.contracts.engine_pair import DEADLINE_S, EnginePair, sampling
from tests.support.store_thread import StoreThread

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.filterwarnings("ignore")]


async def test_greedy_tokens_are_the_same_each_time(pair: EnginePair) -> None:
    prompt = pair.prompt(100)
    assert (await pair.reference(prompt)).tokens == (await pair.reference(prompt)).tokens


async def test_tokens_depend_on_the_whole_prompt(pair: EnginePair) -> None:
    prompt = pair.prompt(100)
    other = [prompt[0] + 1 if prompt[0] + 1 < pair.kind.vocabulary else 300, *prompt[1:]]
    assert (await pair.reference(prompt)).tokens != (await pair.reference(other)).tokens


async def test_a_stream_ends_with_a_reason_and_a_report(pair: EnginePair) -> None:
    answer = await pair.ask(pair.decode, pair.prompt(40), sampling(max_tokens=5))
    assert [delta.finish_reason for delta in answer.deltas[:-1]] == [None] * (len(answer.deltas) - 1)
    assert answer.deltas[-1].finish_reason == "length"
    assert len(answer.tokens) == 5
    assert answer.deltas[-1].report is not None
    assert answer.report.first_token_s > 0


async def test_three_outputs_come_with_their_numbers(pair: EnginePair) -> None:
    answer = await pair.ask(pair.decode, pair.prompt(40), sampling(n=3, temperature=1.0, seed=3, max_tokens=6))
    assert [len(answer.of(index).token_ids) for index in range(3)] == [6, 6, 6]
    assert [answer.of(index).finish_reason for index in range(3)] == ["length"] * 3
    assert answer.report is not None


async def test_a_stop_string_ends_the_text_before_it(pair: EnginePair) -> None:
    prompt = pair.prompt(60)
    text = (await pair.reference(prompt, sampling(max_tokens=12))).of().text
    stop = text[len(text) // 2 :][:3]
    stopped = (await pair.reference(prompt, sampling(max_tokens=12, stop=[stop]))).of()
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
    assert stopped.text == text[: text.index(stop)]


@pytest.mark.parametrize("tokens", [60, 600], ids=["one chunk", "several"])
async def test_equal_seeds_give_equal_samples(pair: EnginePair, tokens: int) -> None:
    prompt = pair.prompt(tokens)
    params = [sampling(temperature=1.0, seed=seed, max_tokens=12) for seed in (7, 7, 8)]
    first, again, other = [(await pair.reference(prompt, each)).tokens for each in params]
    assert first == again != other
    await pair.ask(pair.decode, prompt)
    assert (await pair.ask(pair.decode, prompt, params[0])).tokens == first


async def test_logprobs_are_given_for_each_token(pair: EnginePair) -> None:
    output = (await pair.ask(pair.decode, pair.prompt(40), sampling(logprobs=2, max_tokens=5))).of()
    assert output.logprobs is not None
    assert len(output.logprobs) == len(output.token_ids)
    for token, candidates in zip(output.token_ids, output.logprobs, strict=True):
        assert candidates[0].token_id == token
        assert candidates[0].rank == 1
        assert all(candidate.logprob <= 0 for candidate in candidates)


async def test_closing_a_stream_ends_its_request(pair: EnginePair) -> None:
    request = EngineRequest("closed", pair.prompt(40), sampling(max_tokens=1500))
    async with asyncio.timeout(DEADLINE_S), aclosing(pair.decode.generate(request)) as deltas:  # type: ignore[type-var]
        await anext(deltas)
        assert pair.decode.statistics().running == 1
    assert (pair.decode.statistics().running, pair.decode.statistics().waiting) == (0, 0)
    assert pair.decode.statistics().queued_prefill_tokens == 0
    await pair.ask(pair.decode, pair.prompt(40))


async def test_cancelling_a_reader_ends_its_request(pair: EnginePair) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in pair.decode.generate(EngineRequest("gone", pair.prompt(40), sampling(max_tokens=1500))):
            begun.set()

    reader = asyncio.create_task(read())
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert (pair.decode.statistics().running, pair.decode.statistics().waiting) == (0, 0)
    await pair.ask(pair.decode, pair.prompt(40))


@pytest.mark.parametrize("tokens", [10, 32, 96, 100, 500])
async def test_decode_reads_what_prefill_computed(pair: EnginePair, tokens: int) -> None:
    prompt, block = pair.prompt(tokens), pair.kind.block_size
    full = tokens // block
    ended = await pair.prefill_leg(prompt)
    assert (ended.outcome, ended.announced_blocks, ended.present_blocks) == ("ready", full, full)
    answer = await pair.ask(pair.decode, prompt, expected_blocks=full)
    assert answer.tokens == (await pair.reference(prompt)).tokens
    assert answer.deltas[0].num_cached_tokens == min(full * block, tokens - 1)
    assert (answer.report.loaded_blocks, answer.report.recomputed_blocks) == (full, 0)


@pytest.mark.parametrize("limit_blocks", [0, 3])
async def test_no_more_is_loaded_than_may_be(pair: EnginePair, limit_blocks: int) -> None:
    prompt, block = pair.prompt(200), pair.kind.block_size
    await pair.prefill_leg(prompt)
    answer = await pair.ask(pair.decode, prompt, load_limit_tokens=limit_blocks * block + block // 2)
    assert answer.tokens == (await pair.reference(prompt)).tokens
    assert answer.deltas[0].num_cached_tokens == limit_blocks * block
    assert (answer.report.loaded_blocks, answer.report.recomputed_blocks) == (limit_blocks, 0)


async def test_blocks_the_prefill_engine_had_cached_are_handed_over_too(pair: EnginePair) -> None:
    prompt = pair.prompt(100)
    await pair.prefill_leg(prompt)
    longer = prompt + pair.prompt(60)
    ended = await pair.prefill_leg(longer)
    assert ended.outcome == "ready"
    answer = await pair.ask(pair.decode, longer)
    assert answer.report.loaded_blocks == len(longer) // pair.kind.block_size
    assert answer.tokens == (await pair.reference(longer)).tokens


async def test_the_next_turn_finds_what_decode_made(pair: EnginePair) -> None:
    prompt = pair.prompt(40)
    first = await pair.ask(pair.decode, prompt, sampling(max_tokens=60))
    turn = prompt + first.tokens + pair.prompt(10)
    answer = await pair.ask(pair.prefill, turn)
    assert answer.report.loaded_blocks == (len(prompt) + 59) // pair.kind.block_size
    assert answer.tokens == (await pair.reference(turn)).tokens


@pytest.mark.parametrize("bad", [0, 3])
async def test_a_corrupt_block_is_computed_again(pair: EnginePair, bad: int) -> None:
    prompt = pair.prompt(300)
    full = 300 // pair.kind.block_size
    await pair.prefill_leg(prompt)
    _corrupt(pair.store, (await pair.stored_hashes(prompt))[bad])
    counted = _recomputed(pair, "corrupt")
    answer = await pair.ask(pair.decode, prompt, expected_blocks=full)
    assert answer.tokens == (await pair.reference(prompt)).tokens
    assert (answer.report.recomputed_blocks, answer.report.recompute_reason) == (full - bad, "corrupt")
    assert answer.deltas[0].num_cached_tokens == bad * pair.kind.block_size
    assert _recomputed(pair, "corrupt") == counted + full - bad


@pytest.mark.parametrize("gone", [0, 3])
async def test_a_removed_block_is_computed_again(pair: EnginePair, gone: int) -> None:
    prompt = pair.prompt(300)
    full = 300 // pair.kind.block_size
    await pair.prefill_leg(prompt)
    with pair.store.client() as client:
        assert client.distrust([(await pair.stored_hashes(prompt))[gone]]) == 1
    counted = _recomputed(pair, "evicted")
    answer = await pair.ask(pair.decode, prompt, expected_blocks=full)
    assert answer.tokens == (await pair.reference(prompt)).tokens
    assert (answer.report.recomputed_blocks, answer.report.recompute_reason) == (full - gone, "evicted")
    assert answer.deltas[0].num_cached_tokens == gone * pair.kind.block_size
    assert _recomputed(pair, "evicted") == counted + full - gone


async def test_blocks_that_never_came_are_computed(pair: EnginePair) -> None:
    prompt = pair.prompt(300)
    full = 300 // pair.kind.block_size
    answer = await pair.ask(pair.decode, prompt, expected_blocks=full, missing_reason="late")
    assert answer.tokens == (await pair.reference(prompt)).tokens
    assert (answer.report.recomputed_blocks, answer.report.recompute_reason) == (full, "late")


async def test_another_salt_finds_nothing(pair: EnginePair) -> None:
    prompt = pair.prompt(100)
    await pair.prefill_leg(prompt)
    answer = await pair.ask(pair.decode, prompt, cache_salt="another tenant")
    assert answer.deltas[0].num_cached_tokens == 0
    assert answer.report.loaded_blocks == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"params": sampling(temperature=-1.0)},
        {"params": sampling(max_tokens="many")},
        {"params": b"\xc1 no MessagePack"},
        {"prompt": []},
        {"prompt": [300] * 5000},
        {"prompt": [10_000_000]},
        {"lora_name": "unknown"},
    ],
    ids=["temperature", "type", "garbage", "empty", "too-long", "token", "lora"],
)
async def test_a_request_it_cannot_accept_is_the_clients_fault(pair: EnginePair, fields: dict[str, Any]) -> None:
    fields = {"prompt": pair.prompt(40), **fields}
    with pytest.raises(InvalidRequest):
        await pair.ask(pair.decode, **fields)
    assert pair.decode.statistics().running == 0


async def test_stored_blocks_are_told_as_a_chain_with_their_tokens(pair: EnginePair) -> None:
    prompt = pair.prompt(200)
    await pair.ask(pair.prefill, prompt, sampling(max_tokens=1))
    hashes = await pair.stored_hashes(prompt)
    assert len(hashes) == len(set(hashes)) == 200 // pair.kind.block_size


async def test_an_idle_engine_says_so_and_is_healthy(pair: EnginePair) -> None:
    for engine in (pair.prefill, pair.decode):
        await engine.check_health()
        statistics = engine.statistics()
        assert (statistics.running, statistics.waiting, statistics.queued_prefill_tokens) == (0, 0, 0)
        assert statistics.kv_usage == 0.0


async def test_many_requests_at_once_all_end(pair: EnginePair) -> None:
    prompts = [pair.prompt(60 + 7 * i) for i in range(8)]
    answers = await asyncio.gather(*(pair.ask(pair.decode, prompt) for prompt in prompts))
    assert [len(answer.tokens) for answer in answers] == [8] * 8


def _recomputed(pair: EnginePair, reason: str) -> float:
    return pair.decode.statistics().counters.get(f"recomputed_blocks_{reason}", 0.0)


def _corrupt(store: StoreThread, key: bytes) -> None:
    """Flip one bit of a committed block in the arena."""
    with store.client() as client:
        (block,) = client.pin([key])
        arena = client.attach(client.statistics().slot_bytes)
        arena.slot(block.slot)[7] ^= 1
        arena.close()
        client.unpin([key])
