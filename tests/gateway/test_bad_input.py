"""Bad input is the client's fault: 4xx, an error body of the API, no traceback, nothing in flight."""

import asyncio
import json

import pytest

from cluster.gateway.body import MOST_PIECES, MOST_PIECES_OF_A_RESPONSE
from tests.fakes.backend import Script
from tests.gateway.conftest import BODY_S, MAX_BODY_BYTES
from tests.gateway.requests import CHAT, COMPLETIONS, MESSAGES, RESPONSES, chat, completion, is_openai_error, message

JSON = {"content-type": "application/json"}
DEEP = b"[" * 100_000

RAW = {
    "malformed JSON": b'{"model": "tiny", "messages": [',
    "no JSON at all": b"hello",
    "an empty body": b"",
    "invalid UTF-8": b'{"model": "tiny", "prompt": "\xff\xfe"}',
    "endless nesting": DEEP,
    "a bare null": b"null",
    "a list": b"[1, 2]",
    "a huge number": b'{"model": "tiny", "prompt": "hi", "max_tokens": ' + b"9" * 5000 + b"}",
    "not a number": b'{"model": "tiny", "prompt": "hi", "temperature": NaN}',
    "infinity": b'{"model": "tiny", "prompt": "hi", "temperature": 1e999}',
    "half a character": b'{"model": "tiny", "prompt": "\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}',
    "a salt of half a character": (
        b'{"model": "tiny", "prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "cache_salt": "\\ud800"}'
    ),
}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
@pytest.mark.parametrize("body", RAW.values(), ids=RAW)
async def test_what_is_no_request_is_refused(client, backend, path, body):
    got = await client.post(path, content=body, headers=JSON)
    assert 400 <= got.status_code < 500
    assert is_openai_error(got.json(), got.status_code)
    assert backend.requests == []


IMPOSSIBLE = {
    "no messages": (CHAT, {"model": "tiny"}),
    "an empty conversation": (CHAT, {"model": "tiny", "messages": []}),
    "messages of a wrong type": (CHAT, {"model": "tiny", "messages": "hi"}),
    "a message without a role": (CHAT, {"model": "tiny", "messages": [{"content": "hi"}]}),
    "an image for a text model": (
        CHAT,
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}],
        },
    ),
    "an empty prompt": (COMPLETIONS, completion(prompt="")),
    "no prompt": (COMPLETIONS, {"model": "tiny"}),
    "an empty list of tokens": (COMPLETIONS, completion(prompt=[])),
    "a prompt longer than the context": (COMPLETIONS, completion(prompt=[5] * 600)),
    "a prompt as long as the context": (COMPLETIONS, completion(prompt=[5] * 512)),
    "a long chat": (CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "word " * 2000}]}),
    "a token out of the vocabulary": (COMPLETIONS, completion(prompt=[999_999])),
    "a negative token": (COMPLETIONS, completion(prompt=[-1])),
    "negative max_tokens": (COMPLETIONS, completion(max_tokens=-1)),
    "negative max_tokens in a chat": (CHAT, chat(max_tokens=-5)),
    "huge max_tokens": (COMPLETIONS, completion(max_tokens=10**12)),
    "huge max_tokens in a chat": (CHAT, chat(max_tokens=10**30)),
    "max_tokens of a wrong type": (COMPLETIONS, completion(max_tokens="many")),
    "a temperature below zero": (CHAT, chat(temperature=-1)),
    "a top_p out of range": (CHAT, chat(top_p=2)),
    "no outputs": (CHAT, chat(n=0)),
    "too many outputs": (CHAT, chat(n=10**9)),
    "too many logprobs": (CHAT, chat(logprobs=True, top_logprobs=1000)),
    "a bias on a token out of the vocabulary": (CHAT, chat(logit_bias={"999999": 1})),
    "a bias on no token": (CHAT, chat(logit_bias={"word": 1})),
    "a seed of a hundred digits": (CHAT, chat(seed=10**100)),
    "an argument of a hundred digits": (CHAT, chat(vllm_xargs={"a": 10**100})),
    "a bad regular expression": (CHAT, chat(structured_outputs={"regex": "(["})),
    "a bad grammar": (CHAT, chat(structured_outputs={"grammar": "root ::= ("})),
    "a bad schema": (CHAT, chat(structured_outputs={"json": {"type": "nonsense"}})),
    "two constraints": (CHAT, chat(structured_outputs={"regex": "a", "choice": ["b"]})),
    "constraints that are no object": (CHAT, chat(structured_outputs="x")),
    "constraints in a list": (COMPLETIONS, completion(structured_outputs=[1])),
    "an empty cache salt": (CHAT, chat(cache_salt="")),
    "tools without a parser": (CHAT, chat(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="auto")),
    "tokens that are no tokens": ("/detokenize", {"model": "tiny", "tokens": ["x"]}),
    "tokens out of the vocabulary": ("/detokenize", {"model": "tiny", "tokens": [10**12]}),
}


@pytest.mark.parametrize("stream", [False, True])
async def test_half_a_character_that_an_answer_would_repeat_is_refused(client, backend, stream):
    body = json.dumps({"model": "tiny", "input": "hi", "user": "\ud800", "stream": stream})
    got = await client.post(RESPONSES, content=body, headers=JSON)
    assert got.status_code == 400
    assert is_openai_error(got.json(), 400)
    assert backend.requests == []


@pytest.mark.parametrize("stream", [False, True])
async def test_items_that_no_prompt_can_be_made_of_are_refused(client, backend, stream):
    empty = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": []}
    got = await client.post(RESPONSES, json={"model": "tiny", "input": [empty], "stream": stream})
    assert got.status_code == 400, got.text
    assert is_openai_error(got.json(), 400)
    assert backend.requests == []


async def test_stream_options_need_a_stream(client, backend):
    got = await client.post(CHAT, json=chat(stream_options={"include_usage": True}))
    assert got.status_code == 400
    assert is_openai_error(got.json(), 400)


@pytest.mark.parametrize(("path", "body"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_a_request_that_no_engine_could_answer_is_refused(client, backend, path, body):
    got = await client.post(path, json=body)
    assert 400 <= got.status_code < 500, got.text
    assert is_openai_error(got.json(), got.status_code)
    assert backend.requests == []


STREAMABLE = {name: case for name, case in IMPOSSIBLE.items() if case[0] in (CHAT, COMPLETIONS)}


@pytest.mark.parametrize(("path", "body"), STREAMABLE.values(), ids=STREAMABLE)
async def test_a_stream_is_refused_with_the_same_status(client, backend, path, body):
    got = await client.post(path, json={**body, "stream": True})
    assert 400 <= got.status_code < 500, got.text
    assert is_openai_error(got.json(), got.status_code)
    assert backend.requests == []


UNKNOWN = {CHAT: chat(), COMPLETIONS: completion(), RESPONSES: {"input": "hi"}}


@pytest.mark.parametrize("path", UNKNOWN)
async def test_an_unknown_model_is_not_found(client, path):
    got = await client.post(path, json={**UNKNOWN[path], "model": "other"})
    assert got.status_code == 404
    assert is_openai_error(got.json(), 404)


async def test_a_wrong_content_type_is_refused(client):
    got = await client.post(CHAT, content=json.dumps(chat()), headers={"content-type": "text/plain"})
    assert got.status_code == 400
    assert is_openai_error(got.json(), 400)


async def test_a_body_that_says_it_is_too_long_is_not_read(client, backend):
    got = await client.post(CHAT, content=b"x" * (MAX_BODY_BYTES + 1), headers=JSON)
    assert got.status_code == 413
    assert is_openai_error(got.json(), 413)


async def test_a_body_that_grows_too_long_is_cut_off(client):
    async def endless():
        for _ in range(MAX_BODY_BYTES // 1024 + 2):
            yield b" " * 1024

    got = await client.post(CHAT, content=endless(), headers=JSON)
    assert got.status_code == 413
    assert is_openai_error(got.json(), 413)


PIECES = {
    "messages": (CHAT, {"messages": [{}] * MOST_PIECES}),
    "a bias": (CHAT, chat(logit_bias={str(token): 1 for token in range(MOST_PIECES)})),
    "something unknown": (COMPLETIONS, completion(unknown=[[]] * MOST_PIECES)),
    "items of a Response": (RESPONSES, {"input": [{}] * MOST_PIECES_OF_A_RESPONSE}),
    "turns of a message": (MESSAGES, message(messages=[{}] * MOST_PIECES)),
}


@pytest.mark.parametrize(("path", "body"), PIECES.values(), ids=PIECES)
async def test_more_pieces_than_are_looked_at_in_no_time_are_not_even_parsed(client, backend, monkeypatch, path, body):
    raw = json.dumps(body).encode()
    monkeypatch.setattr(json, "loads", None)
    got = await client.post(path, content=raw, headers=JSON)
    monkeypatch.undo()
    assert got.status_code == 400
    assert got.json()["error"]["message"] == "the request body has too many objects, lists and members"


async def test_pieces_in_strings_are_text(client, backend):
    text = '{"a": [' * (MOST_PIECES // 3 + 1) + '\\"\\\\'
    got = await client.post(CHAT, json=chat(user=text))
    assert got.status_code == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_body_that_does_not_come_to_its_end_is_given_up(client, backend, path):
    async def stalled():
        yield b'{"model": '
        await asyncio.Event().wait()

    got = await client.post(path, content=stalled(), headers=JSON)
    assert got.status_code == 408
    assert got.headers["connection"] == "close"
    assert got.json()["error"]["message"] == "the request body did not arrive in time"
    assert backend.requests == []


async def test_an_answer_may_take_longer_than_a_body(client, backend):
    gate = asyncio.Event()
    backend.script = lambda request: Script(gate=gate)
    asyncio.get_running_loop().call_later(2 * BODY_S, gate.set)
    got = await client.post(CHAT, json=chat())
    assert got.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_does_not_repeat_a_long_request(client, stream):
    got = await client.post(CHAT, json=chat(logit_bias={"x" * 100_000: 1}, stream=stream))
    assert got.status_code == 400
    assert is_openai_error(got.json(), 400)
    assert len(got.content) < 5_000


async def test_counting_tokens_has_anthropics_error_body(client):
    got = await client.post("/v1/messages/count_tokens", json={**message(), "model": "other"})
    assert got.status_code == 404
    assert got.json()["type"] == "error"
    assert got.json()["error"]["type"] == "not_found_error"


async def test_bad_messages_get_anthropics_error_body(client):
    for body, status in (({**message(), "model": "other"}, 404), ({"model": "tiny", "messages": []}, 400)):
        got = await client.post(MESSAGES, json=body)
        assert got.status_code == status
        assert got.json()["type"] == "error"
        assert set(got.json()["error"]) == {"type", "message"}


@pytest.mark.parametrize("path", ["/v1/load_lora_adapter", "/scale_elastic_ep", "/nowhere", "/v1/embeddings"])
async def test_closed_routes_do_not_exist(client, path):
    got = await client.post(path, json={})
    assert got.status_code == 404
    assert is_openai_error(got.json(), 404)


async def test_a_wrong_method_is_not_allowed(client):
    got = await client.get(CHAT)
    assert got.status_code == 405
    assert got.headers["allow"] == "OPTIONS, POST"
    assert is_openai_error(got.json(), 405)
