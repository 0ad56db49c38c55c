"""The short way of the two busiest routes: the same answers, the same refusals, and everything else left to FastAPI."""

import asyncio
import json

import pytest

from cluster.gateway.answers import ChatAnswers
from cluster.gateway.hot_route import MOST_BYTES, HotRoute
from cluster.gateway.validation import Prompting
from tests.fakes.backend import Script
from tests.gateway.conftest import open_client
from tests.gateway.requests import CHAT, COMPLETIONS, chat, completion, events, normalised
from tests.gateway.test_bad_input import IMPOSSIBLE, JSON, RAW
from tests.gateway.test_stream_bytes import REQUESTS, SCRIPTS, USAGE

WHOLE = {name: (path, body) for name, (path, body) in REQUESTS.items() if "stream_options" not in body}
OTHERS = {
    "several outputs": (CHAT, chat(n=2)),
    "chat logprobs": (CHAT, chat(logprobs=True, top_logprobs=2)),
    "chat prompt logprobs": (CHAT, chat(prompt_logprobs=1)),
    "chat token ids": (CHAT, chat(return_token_ids=True)),
    "chat echo": (CHAT, chat(echo=True)),
    "a schema": (CHAT, chat(response_format={"type": "json_object"})),
    "several prompts": (COMPLETIONS, completion(prompt=["a", "b"])),
    "logprobs": (COMPLETIONS, completion(logprobs=1)),
    "prompt logprobs": (COMPLETIONS, completion(prompt_logprobs=1)),
    "token ids": (COMPLETIONS, completion(return_token_ids=True)),
    "echo": (COMPLETIONS, completion(echo=True)),
    "of an unknown model": (COMPLETIONS, completion(model="other")),
}


def hot_routes(app) -> list[HotRoute]:
    guarded = [route.app for route in app._app.router.routes if isinstance(getattr(route, "app", None), Prompting)]
    return [each.route for each in guarded if isinstance(each.route, HotRoute)]


async def forbidden(*_, **__):
    raise AssertionError("the long way was taken")


async def long_way(app, monkeypatch, path, **request):
    """What FastAPI and vLLM's own objects make of a request."""
    with monkeypatch.context() as patch:
        for route in hot_routes(app):
            patch.setattr(route, "_plain", lambda *_: None)
        return await post(app, path, **request)


async def short_way(app, monkeypatch, path, **request):
    """What the hot route makes of it; FastAPI may not be asked."""
    with monkeypatch.context() as patch:
        for route in hot_routes(app):
            patch.setattr(route, "_fastapi", forbidden)
        return await post(app, path, **request)


async def post(app, path, **request):
    async with open_client(app) as client:
        return await client.post(path, **request)


def seen(got):
    """An answer without what differs from request to request."""
    headers = {name: value for name, value in got.headers.items() if name != "content-length"}
    return got.status_code, headers, normalised(got.text)


@pytest.fixture(params=["plain_app", "tools_app"])
def app(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize(("path", "body"), WHOLE.values(), ids=WHOLE)
async def test_whole_answers_are_the_bytes_of_vllms(app, backend, monkeypatch, path, body, script):
    backend.script = lambda _: script
    short = await short_way(app, monkeypatch, path, json=body)
    assert seen(short) == seen(await long_way(app, monkeypatch, path, json=body))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), OTHERS.values(), ids=OTHERS)
async def test_what_templates_do_not_know_is_answered_alike(plain_app, backend, monkeypatch, path, body, stream):
    body = {**body, "stream": stream}
    short = seen(await short_way(plain_app, monkeypatch, path, json=body))
    long = seen(await long_way(plain_app, monkeypatch, path, json=body))
    assert short[:2] == long[:2]
    assert sorted(short[2].splitlines()) == sorted(long[2].splitlines())  # prompts take turns as they like


async def test_a_plain_answer_is_not_built_by_vllm(plain_app, backend, monkeypatch):
    answers = plain_app._app.state.openai_serving_chat.chat_completion_full_generator.__self__
    assert isinstance(answers, ChatAnswers)
    monkeypatch.setattr(answers, "_slow", forbidden)
    assert (await post(plain_app, CHAT, json=chat())).status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", RAW.values(), ids=RAW)
async def test_what_is_no_request_is_refused_as_fastapi_refuses_it(plain_app, backend, monkeypatch, path, body):
    short = await post(plain_app, path, content=body, headers=JSON)
    assert seen(short) == seen(await long_way(plain_app, monkeypatch, path, content=body, headers=JSON))


@pytest.mark.parametrize(("path", "body"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_an_impossible_request_is_refused_alike(plain_app, backend, monkeypatch, path, body):
    short = await post(plain_app, path, json=body)
    assert seen(short) == seen(await long_way(plain_app, monkeypatch, path, json=body))


@pytest.mark.parametrize(
    ("kind", "status"),
    [("application/json; charset=utf-8", 200), ("Application/JSON", 200), ("text/plain", 400), ("", 400)],
)
async def test_the_content_type_decides_as_before(plain_app, backend, monkeypatch, kind, status):
    request = {"content": json.dumps(chat()), "headers": {"content-type": kind}}
    short = await post(plain_app, CHAT, **request)
    assert short.status_code == status
    assert seen(short) == seen(await long_way(plain_app, monkeypatch, CHAT, **request))


async def test_a_large_body_is_checked_once_by_fastapi(plain_app, backend, monkeypatch):
    monkeypatch.setattr("cluster.gateway.hot_route.MOST_BYTES", 64)
    assert MOST_BYTES > 64
    for route in hot_routes(plain_app):
        monkeypatch.setattr(route, "_validate", forbidden)
    assert (await post(plain_app, CHAT, json=chat(user="u" * 64))).status_code == 200


async def test_a_body_in_pieces_is_one_body(plain_app, backend, monkeypatch):
    async def pieces():
        for byte in json.dumps(chat()).encode():
            yield bytes([byte])

    got = await short_way(plain_app, monkeypatch, CHAT, content=pieces(), headers=JSON)
    assert got.json()["choices"][0]["message"]["content"] == "Hello, world!"


async def test_streams_take_the_short_way_too(plain_app, backend, monkeypatch):
    got = await short_way(plain_app, monkeypatch, CHAT, json=chat(stream=True, **USAGE))
    assert events(got.text)[-1]["usage"]["completion_tokens"] == 4


async def test_a_key_is_asked_for_on_the_short_way(model_folder, backend, current_backend):
    from tests.gateway.conftest import build

    app = await asyncio.to_thread(build, model_folder, current_backend, api_key=["secret"])
    assert (await post(app, CHAT, json=chat())).status_code == 401
    assert (await post(app, CHAT, json=chat(), headers={"authorization": "Bearer secret"})).status_code == 200
    assert len(backend.requests) == 1


async def test_nothing_is_left_running_after_an_answer(plain_app, backend):
    before = asyncio.all_tasks()
    backend.script = lambda _: Script(finish_reason="error")
    assert (await post(plain_app, CHAT, json=chat())).status_code == 500
    assert asyncio.all_tasks() == before
