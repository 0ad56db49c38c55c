"""The tokens are vLLM's own, wherever and however they were made."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.inputs import TextPrompt
from vllm.renderers.params import TokenizeParams

from cluster.gateway.tokenising import AT_ONCE_CHARS, LONG_CHARS, PromptTokenizer
from tests.gateway.requests import COMPLETIONS, completion

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
MARKED = st.lists(st.one_of(TEXT, st.sampled_from(["<|im_start|>", "<s>", "</s>", "<|endoftext|>", " ", "\n\n"])))


@pytest.fixture(scope="session")
def tokenizer(plain_app) -> PromptTokenizer:
    renderer = plain_app._app.state.openai_serving_completion.renderer
    return renderer._tokenize_prompt.__self__


def prompt(text: str) -> TextPrompt:
    return TextPrompt(prompt=text)


@given(pieces=MARKED, special=st.booleans())
def test_ids_are_those_of_the_whole_encoding(tokenizer, pieces, special):
    params = TokenizeParams(512, add_special_tokens=special)
    text = "".join(pieces)
    assert tokenizer.tokenize(prompt(text), params) == tokenizer._slow(prompt(text), params)


@pytest.mark.parametrize(
    "params",
    [
        TokenizeParams(512, truncate_prompt_tokens=3),
        TokenizeParams(512, truncate_prompt_tokens=3, truncation_side="left"),
        TokenizeParams(512, return_token_offsets=True),
        TokenizeParams(None),
    ],
    ids=["truncated", "from the left", "with offsets", "of any length"],
)
def test_what_ids_alone_do_not_answer_is_left_to_vllm(tokenizer, monkeypatch, params):
    asked = []
    slow = tokenizer._slow
    monkeypatch.setattr(tokenizer, "_slow", lambda *given: asked.append(given) or slow(*given))
    assert "prompt_token_ids" in tokenizer.tokenize(prompt("some words for it"), params)
    assert len(asked) == 1


def test_a_prompt_too_long_is_cut_where_vllm_cuts_it(tokenizer):
    params = TokenizeParams(512)
    text = "word " * 2000
    got = tokenizer.tokenize(prompt(text), params)
    assert got == tokenizer._slow(prompt(text), params)
    assert len(got["prompt_token_ids"]) == 513


@pytest.mark.parametrize("length", [AT_ONCE_CHARS, AT_ONCE_CHARS + 1, LONG_CHARS + 1])
async def test_every_length_is_answered_and_only_short_ones_on_the_loop(tokenizer, monkeypatch, length):
    threads = set()
    tokenize = tokenizer._renderer._build_tokens_prompt
    monkeypatch.setattr(
        tokenizer._renderer,
        "_build_tokens_prompt",
        lambda *given: threads.add(threading.current_thread()) or tokenize(*given),
    )
    await tokenizer.tokenize_async(prompt("a" * length), TokenizeParams(512))
    assert (threading.current_thread() in threads) == (length <= AT_ONCE_CHARS)


async def test_many_prompts_at_once_get_their_own_tokens(tokenizer):
    params = TokenizeParams(512)
    texts = [f"{number} " + "words and more " * 100 for number in range(32)]
    got = await asyncio.gather(*(tokenizer.tokenize_async(prompt(text), params) for text in texts))
    assert got == [tokenizer._slow(prompt(text), params) for text in texts]


async def test_a_request_is_tokenised_this_way(client, backend, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "_slow", None)
    assert (await client.post(COMPLETIONS, json=completion())).status_code == 200
