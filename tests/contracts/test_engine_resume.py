"""An output that one engine began goes on in another: joined, both parts are what one engine alone answers."""

import itertools
from typing import Any

import msgspec
import pytest

from cluster.dataplane.frames import Delta, Emitted
from cluster.engines.engine import Engine
from tests.contracts.engine_pair import Answer, EnginePair, sampling

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.filterwarnings("ignore")]

SAMPLED = {"temperature": 1.0, "seed": 11}
_salts = itertools.count()


def begun(answer: Answer, tokens: int, index: int = 0) -> Delta:
    """What had come of an output after at least so many tokens."""
    had = Delta(index, [])
    for delta in answer.deltas:
        if delta.index == index and len(had.token_ids) < tokens:
            had.absorb(msgspec.structs.replace(delta, token_ids=list(delta.token_ids)))
    return had


async def continued(engine: Engine, pair: EnginePair, prompt: list[int], params: bytes, had: Delta) -> Delta:
    """What another engine, that knows nothing of the first one's blocks, makes of the rest; both parts."""
    emitted = Emitted(had.index, list(had.token_ids), len(had.text), had.cumulative_logprob)
    answer = await pair.ask(engine, prompt, params, cache_salt=f"elsewhere-{next(_salts)}", emitted=emitted)
    whole = msgspec.structs.replace(had, token_ids=list(had.token_ids))
    whole.absorb(answer.of(had.index))
    assert answer.report is not None
    return whole


def essence(output: Delta) -> dict[str, Any]:
    """What a client can see."""
    return {
        "tokens": output.token_ids,
        "text": output.text,
        "end": (output.finish_reason, output.stop_reason),
        "decoded": [[c.decoded for c in position] for position in output.logprobs or ()],
        "ranked": [[c.token_id for c in position] for position in output.logprobs or ()],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "max_tokens": 9},
        {"temperature": 0.0, "repetition_penalty": 1.3},
        {"temperature": 0.0, "frequency_penalty": 0.7, "presence_penalty": 0.5},
        SAMPLED,
        {**SAMPLED, "top_k": 20, "top_p": 0.9},
        {**SAMPLED, "frequency_penalty": 0.7, "repetition_penalty": 1.2},
        {**SAMPLED, "logprobs": 3},
        {"temperature": 0.0, "logprobs": 3},
        {"temperature": 0.0, "detokenize": False},
        {"temperature": 0.0, "skip_special_tokens": False, "spaces_between_special_tokens": False},
    ],
    ids=str,
)
async def test_it_goes_on_as_if_nothing_had_happened(pair: EnginePair, fields: dict[str, Any]) -> None:
    prompt, params = pair.prompt(40), sampling(**{"max_tokens": 20, **fields})
    alone = await pair.reference(prompt, params)
    for tokens in (1, len(alone.tokens) - 1):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, tokens))
        assert essence(whole) == essence(alone.of())
        if "logprobs" in fields:
            assert whole.cumulative_logprob == pytest.approx(alone.of().cumulative_logprob, abs=0.05)


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, SAMPLED], ids=["greedy", "sampled"])
async def test_no_character_is_lost_or_told_twice_wherever_it_stopped(pair: EnginePair, fields: dict[str, Any]) -> None:
    prompt, params = list(range(300, 340)), sampling(**fields, max_tokens=16)
    alone = await pair.reference(prompt, params)
    for tokens in range(1, 16, 3):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, tokens))
        assert essence(whole) == essence(alone.of())


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, SAMPLED], ids=["greedy", "sampled"])
async def test_a_character_on_the_seam_is_told_once_it_is_whole(pair: EnginePair, fields: dict[str, Any]) -> None:
    """Where the engine lets its tokens be chosen, they are bytes that make characters of two, three and four."""
    if pair.kind.bytes_of_characters:
        fields = {**fields, "allowed_token_ids": pair.kind.bytes_of_characters}
    prompt, params = pair.prompt(40), sampling(max_tokens=16, logprobs=2, **fields)
    alone = await pair.reference(prompt, params)
    for tokens in range(1, 16):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, tokens))
        assert essence(whole) == essence(alone.of())


async def test_every_output_goes_on_with_its_own_seed(pair: EnginePair) -> None:
    prompt, params = pair.prompt(40), sampling(n=3, max_tokens=12, **SAMPLED)
    alone = await pair.reference(prompt, params)
    for index, tokens in ((0, 5), (1, 1), (2, 11)):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, tokens, index))
        assert essence(whole) == essence(alone.of(index))
    nothing = await continued(pair.prefill, pair, prompt, params, Delta(1, []))
    assert essence(nothing) == essence(alone.of(1))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("fields", [{"temperature": 0.0}, SAMPLED], ids=["greedy", "sampled"])
async def test_a_stop_string_on_the_seam_ends_the_text(pair: EnginePair, keep: bool, fields: dict[str, Any]) -> None:
    prompt = pair.prompt(40)
    free = await pair.reference(prompt, sampling(max_tokens=24, **fields))
    seam = len(begun(free, 10).text)
    text = free.of().text
    stop = text[seam - 3 : seam + 3]
    params = sampling(max_tokens=24, stop=[stop], include_stop_str_in_output=keep, **fields)
    alone = await pair.reference(prompt, params)
    tokens = len(alone.tokens)
    assert alone.of().stop_reason == stop
    for had in {1, tokens - 2, tokens - 1} & set(range(1, tokens)):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, had))
        assert essence(whole) == essence(alone.of())


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, SAMPLED], ids=["greedy", "sampled"])
async def test_the_least_and_the_most_tokens_count_all_of_them(pair: EnginePair, fields: dict[str, Any]) -> None:
    prompt = pair.prompt(40)
    free = await pair.reference(prompt, sampling(max_tokens=24, **fields))
    params = sampling(max_tokens=24, min_tokens=16, stop_token_ids=sorted(set(free.tokens)), **fields)
    alone = await pair.reference(prompt, params)
    for had in (3, 15):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, had))
        assert essence(whole) == essence(alone.of())


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, SAMPLED], ids=["greedy", "sampled"])
async def test_a_grammar_goes_on_where_it_was(pair: EnginePair, fields: dict[str, Any]) -> None:
    prompt = pair.prompt(40)
    params = sampling(max_tokens=24, structured_outputs={"regex": r"[0-9]{3}-[a-z]{8}-[0-9]{9}"}, **fields)
    alone = await pair.reference(prompt, params)
    for had in (2, 7):
        whole = await continued(pair.prefill, pair, prompt, params, begun(alone, had))
        assert essence(whole) == essence(alone.of())


async def test_what_the_first_engine_computed_is_loaded(pair: EnginePair) -> None:
    prompt, params, block = pair.prompt(40), sampling(max_tokens=60), pair.kind.block_size
    alone = await pair.ask(pair.decode, prompt, params)
    had = begun(alone, 50)
    emitted = Emitted(0, list(had.token_ids), len(had.text))
    rest = await pair.ask(pair.prefill, prompt, params, emitted=emitted)
    assert had.token_ids + rest.tokens == alone.tokens
    assert rest.report.loaded_blocks == (len(prompt) + len(had.token_ids) - 1) // block
