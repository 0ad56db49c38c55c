import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.engines.engine import BlocksChanged
from cluster.engines.simulated.engine import SimulatedEngine
from cluster.engines.simulated.faults import Faults
from cluster.engines.simulated.vocabulary import Vocabulary
from cluster.errors import EngineFailed, InvalidRequest
from tests.unit.engines.simulated.bench import (
    clear_prefix_cache,
    held_blocks,
    prompt_of,
    reference,
    request,
    run,
    run_all,
    settings,
)


@pytest.fixture
async def engine(model: Path) -> AsyncIterator[SimulatedEngine]:
    made = await SimulatedEngine.create(settings(model))
    yield made
    await made.close()


async def test_tokens_are_those_of_the_reference(engine: SimulatedEngine, model: Path) -> None:
    for length in (1, 15, 16, 17, 100):
        prompt = prompt_of(length)
        answer = await run(engine, request("one", prompt, max_tokens=40))
        assert answer.token_ids == reference(settings(model), prompt, 40)
        assert answer.finish_reason == "length"


async def test_text_is_what_the_ids_decode_to(engine: SimulatedEngine, model: Path) -> None:
    answer = await run(engine, request("one", prompt_of(20), max_tokens=30))
    assert answer.text == "".join(map(Vocabulary.load(model).text, answer.token_ids))


async def test_sixty_four_requests_at_once_get_the_tokens_of_the_reference(
    engine: SimulatedEngine, model: Path
) -> None:
    prompts = [prompt_of(10 + 3 * index, first=index) for index in range(64)]
    answers = await asyncio.gather(
        *(run(engine, request(str(index), prompt, max_tokens=20)) for index, prompt in enumerate(prompts))
    )
    assert [answer.token_ids for answer in answers] == [reference(settings(model), prompt, 20) for prompt in prompts]
    assert held_blocks(engine) == 0
    engine.check()


async def test_seeded_sampling_repeats_and_each_output_differs(engine: SimulatedEngine, model: Path) -> None:
    prompt = prompt_of(40)
    outputs = await run_all(engine, request("n", prompt, n=3, temperature=0.9, seed=11, max_tokens=12))
    assert outputs[0].token_ids == reference(settings(model), prompt, 12, temperature=0.9, seed=11)
    assert outputs[2].token_ids == reference(settings(model), prompt, 12, temperature=0.9, seed=13)
    assert {output.finish_reason for output in outputs.values()} == {"length"}
    assert outputs[1].num_cached_tokens == 32


async def test_a_repeated_prompt_is_cached_but_for_its_last_tokens(engine: SimulatedEngine) -> None:
    first = await run(engine, request("one", prompt_of(50)))
    second = await run(engine, request("two", prompt_of(50)))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 48)
    assert first.token_ids == second.token_ids
    whole = await run(engine, request("three", prompt_of(48)))
    assert whole.num_cached_tokens == 47


async def test_a_prompt_is_computed_in_chunks(model: Path) -> None:
    engine = await SimulatedEngine.create(settings(model, max_batched_tokens=32))
    answer = await run(engine, request("one", prompt_of(100), max_tokens=1))
    assert answer.token_ids == reference(settings(model), prompt_of(100), 1)
    assert engine.statistics().counters["steps"] == 4
    await engine.close()


async def test_a_full_device_evicts_and_answers_stay_right(model: Path) -> None:
    used = settings(model, device_blocks=32)
    engine = await SimulatedEngine.create(used)
    for index in range(12):
        prompt = prompt_of(90, first=index)
        answer = await run(engine, request(str(index), prompt))
        assert answer.token_ids == reference(used, prompt, 8)
    assert (await run(engine, request("again", prompt_of(90, first=0)))).num_cached_tokens == 0
    engine.check()
    await engine.close()


async def test_out_of_blocks_the_latest_arrival_is_computed_again(model: Path) -> None:
    used = settings(model, device_blocks=32)
    engine = await SimulatedEngine.create(used)
    prompts = [prompt_of(60, first=index) for index in range(6)]
    answers = await asyncio.gather(
        *(run(engine, request(str(index), prompt, max_tokens=100)) for index, prompt in enumerate(prompts))
    )
    assert engine.statistics().counters["preemptions"] > 0
    assert [answer.token_ids for answer in answers] == [reference(used, prompt, 100) for prompt in prompts]
    assert held_blocks(engine) == 0
    await engine.close()


@pytest.mark.parametrize("read_deltas", [0, 1, 2, 5])
async def test_closing_the_iterator_at_any_moment_releases_every_block(
    engine: SimulatedEngine, read_deltas: int
) -> None:
    stream = engine.generate(request("one", prompt_of(100), max_tokens=200, n=2))
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    for _ in range(read_deltas):
        await reading
        reading = asyncio.ensure_future(anext(stream))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    statistics = engine.statistics()
    assert (statistics.running, statistics.waiting, statistics.kv_usage, held_blocks(engine)) == (0, 0, 0, 0)
    computed = statistics.counters.get("tokens", 0)
    await engine.check_health()
    assert engine.statistics().counters.get("tokens", 0) == computed
    engine.check()


async def test_a_stop_token_ends_the_output_and_is_not_shown(engine: SimulatedEngine) -> None:
    free = await run(engine, request("one", prompt_of(30), max_tokens=20))
    stop = free.token_ids[6]
    expected = free.token_ids[: free.token_ids.index(stop) + 1]
    answer = await run(engine, request("two", prompt_of(30), max_tokens=20, stop_token_ids=[stop]))
    assert (answer.token_ids, answer.finish_reason, answer.stop_reason) == (expected, "stop", stop)
    assert free.text.startswith(answer.text)
    late = await run(engine, request("three", prompt_of(30), max_tokens=20, stop_token_ids=[stop], min_tokens=15))
    assert stop not in late.token_ids[:15]


async def test_a_stop_string_across_tokens_is_held_back_and_cut_off(engine: SimulatedEngine) -> None:
    free = await run(engine, request("one", prompt_of(30), max_tokens=40))
    stop = free.text[20:26]
    shown = free.text[: free.text.index(stop)]
    seen = ""
    async for delta in engine.generate(request("two", prompt_of(30), max_tokens=40, stop=[stop])):
        seen += delta.text
        assert shown.startswith(seen)
    assert (seen, delta.finish_reason, delta.stop_reason) == (shown, "stop", stop)
    kept = request("three", prompt_of(30), max_tokens=40, stop=stop, include_stop_str_in_output=True)
    assert (await run(engine, kept)).text == shown + stop


async def test_logprobs_are_sorted_and_sum_to_less_than_one(engine: SimulatedEngine) -> None:
    answer = await run(engine, request("one", prompt_of(20), max_tokens=5, logprobs=3, prompt_logprobs=2))
    assert answer.logprobs is not None
    assert [entry[0].token_id for entry in answer.logprobs] == answer.token_ids
    assert all([each.rank for each in entry] == [1, 2, 3] for entry in answer.logprobs)
    assert answer.cumulative_logprob == pytest.approx(sum(entry[0].logprob for entry in answer.logprobs))
    assert answer.prompt_logprobs is not None
    assert answer.prompt_logprobs[0] is None
    assert [entry[0].token_id for entry in answer.prompt_logprobs if entry] == prompt_of(20)[1:]


@pytest.mark.parametrize(
    ("prompt", "sampling"),
    [
        ([], {}),
        ([5] * 512, {}),
        ([10_000], {}),
        ([-1], {}),
        ([5], {"max_tokens": 0}),
        ([5], {"max_tokens": "many"}),
        ([5], {"n": 0}),
        ([5], {"temperature": -1.0}),
        ([5], {"logprobs": 21}),
        ([5], {"stop": [""]}),
        ([5], {"stop": ["x"], "detokenize": False}),
    ],
)
async def test_what_cannot_be_answered_is_refused(
    engine: SimulatedEngine, prompt: list[int], sampling: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest):
        await run(engine, request("one", prompt, **sampling))
    assert engine.statistics().waiting == 0


async def test_an_output_ends_at_the_models_length(engine: SimulatedEngine) -> None:
    answer = await run(engine, request("one", prompt_of(500), max_tokens=None))
    assert (len(answer.token_ids), answer.finish_reason) == (12, "length")


async def test_events_tell_what_the_prefix_cache_holds(model: Path) -> None:
    engine = await SimulatedEngine.create(settings(model, device_blocks=32))
    events = engine.events()
    reading = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    prompt = prompt_of(40)
    await run(engine, request("one", prompt, max_tokens=1))
    (stored,) = await reading
    assert (stored.kind, stored.parent, list(stored.token_ids), len(stored.hashes)) == ("stored", None, prompt[:32], 2)
    await run(engine, request("two", prompt_of(500, first=9), max_tokens=1))
    changes = await anext(events)
    assert [change.kind for change in changes] == ["removed", "stored"]
    assert list(changes[0].hashes) == list(reversed(stored.hashes))
    clear_prefix_cache(engine)
    assert await anext(events) == [BlocksChanged("cleared")]
    await events.aclose()
    await engine.close()


async def test_a_later_block_is_stored_with_its_parent(engine: SimulatedEngine) -> None:
    events = engine.events()
    reading = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    answer = await run(engine, request("one", prompt_of(10), max_tokens=40))
    changes = [*await reading]
    while len(changes) < 3:
        changes += await anext(events)
    parents = [change.parent for change in changes]
    assert parents == [None, *(change.hashes[-1] for change in changes[:-1])]
    tokens = [token for change in changes for token in change.token_ids]
    assert tokens == (prompt_of(10) + answer.token_ids)[:48]
    await events.aclose()


async def test_a_dying_engine_fails_its_requests_and_its_health(engine: SimulatedEngine) -> None:
    engine.inject(Faults(die_after_tokens=5))
    with pytest.raises(EngineFailed, match="died"):
        await run(engine, request("one", prompt_of(20), max_tokens=50))
    with pytest.raises(EngineFailed):
        await engine.check_health()
    with pytest.raises(EngineFailed):
        await run(engine, request("two", prompt_of(20)))


async def test_a_hanging_engine_makes_no_step_until_it_goes_on(model: Path) -> None:
    engine = await SimulatedEngine.create(settings(model))
    await engine.check_health()
    before = engine.statistics().steps
    engine.inject(Faults(hang=True))
    probe = asyncio.ensure_future(engine.check_health())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(probe), 0.05)
    assert (engine.statistics().steps, engine.statistics().dead) == (before, False)
    engine.inject(Faults())
    await probe
    assert engine.statistics().steps > before
    assert (await run(engine, request("one", prompt_of(20)))).finish_reason == "length"
    await engine.close()


async def test_the_next_requests_fail_as_often_as_told(engine: SimulatedEngine) -> None:
    engine.inject(Faults(fail_prefills=1))
    with pytest.raises(EngineFailed):
        await run(engine, request("one", prompt_of(20)))
    assert (await run(engine, request("two", prompt_of(20)))).finish_reason == "length"


async def test_closing_the_engine_fails_what_is_open(engine: SimulatedEngine) -> None:
    stream = engine.generate(request("one", prompt_of(20), max_tokens=400))
    await anext(stream)
    await engine.close()
    with pytest.raises(EngineFailed, match="closed"):
        async for _ in stream:
            pass


async def test_a_device_smaller_than_the_models_length_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="raise device_blocks or lower max_model_len"):
        await SimulatedEngine.create(settings(model, device_blocks=31))
