"""The fast writer writes what vLLM's own generators write, byte for byte, brought into shape."""

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import errors
from cluster.gateway.templates import to_json
from tests.fakes.backend import Script
from tests.gateway.conftest import open_client
from tests.gateway.requests import CHAT, COMPLETIONS, chat, completion, normalised

USAGE = {"stream_options": {"include_usage": True}}
REQUESTS = {
    "chat": (CHAT, chat()),
    "chat with usage": (CHAT, chat(**USAGE)),
    "chat with options but no usage": (CHAT, chat(stream_options={"include_usage": False})),
    "chat cut short": (CHAT, chat(max_tokens=2)),
    "chat, one token": (CHAT, chat(max_tokens=1, **USAGE)),
    "chat continuing a message": (
        CHAT,
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "add_generation_prompt": False,
            "continue_final_message": True,
        },
    ),
    "completion": (COMPLETIONS, completion()),
    "completion with usage": (COMPLETIONS, completion(**USAGE)),
    "completion of tokens": (COMPLETIONS, completion(prompt=[5, 6, 7], **USAGE)),
    "completion cut short": (COMPLETIONS, completion(max_tokens=2)),
}
SCRIPTS = {
    "plain": Script(),
    "one piece": Script(pieces=("x",)),
    "unicode": Script(pieces=("héé", "日本語", "🙂", "\u2028", "\x7f")),
    "quotes and control characters": Script(pieces=('"', "\\", "\n\r\t", "\b\f", "\x00\x1f", "</script>")),
    "a delta without text": Script(pieces=("", "a", "", "b", "")),
    "stop string": Script(stop_reason="\n\n"),
    "stop token": Script(stop_reason=42),
    "aborted": Script(finish_reason="abort"),
    "nothing cached": Script(cached_tokens=0),
    "engine error": Script(finish_reason="error"),
    "engine error at once": Script(pieces=("x",), finish_reason="error"),
    "failing in mid-stream": Script(failure=errors.ReplicaLost("worker gone"), fail_before=2),
    "too late in mid-stream": Script(failure=errors.DeadlineExceeded("late"), fail_before=1),
}


def forbidden(*_, **__):
    raise AssertionError("vLLM's generator was asked")


@pytest.fixture(params=["plain_app", "tools_app"])
def app(request):
    """Both without and with a tool parser that has nothing to parse."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize(("path", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_plain_streams_are_the_bytes_of_vllms_generators(app, backend, monkeypatch, path, body, script):
    backend.script = lambda _: script
    with monkeypatch.context() as patch:
        for writer in writers(app):
            patch.setattr(writer, "_slow", forbidden)
        fast = await post(app, path, {**body, "stream": True})
    with monkeypatch.context() as patch:
        for writer in writers(app):
            patch.setattr(writer, "_is_plain", lambda *_: False)
        slow = await post(app, path, {**body, "stream": True})
    assert normalised(fast.text) == normalised(slow.text)
    assert fast.status_code == slow.status_code == 200


async def post(app, path, body):
    async with open_client(app) as client:
        return await client.post(path, json=body)


OTHERS = {
    "continuous usage": (CHAT, chat(stream_options={"include_usage": True, "continuous_usage_stats": True})),
    "logprobs": (CHAT, chat(logprobs=True)),
    "several outputs": (CHAT, chat(n=2)),
    "token ids": (CHAT, chat(return_token_ids=True)),
    "echo": (COMPLETIONS, completion(echo=True)),
    "several prompts": (COMPLETIONS, completion(prompt=["a", "b"])),
    "completion logprobs": (COMPLETIONS, completion(logprobs=1)),
    "continuous completion usage": (
        COMPLETIONS,
        completion(stream_options={"include_usage": True, "continuous_usage_stats": True}),
    ),
}


@pytest.mark.parametrize(("path", "body"), OTHERS.values(), ids=OTHERS)
async def test_everything_else_is_left_to_vllm(plain_app, client, monkeypatch, path, body):
    for writer in writers(plain_app):
        monkeypatch.setattr(writer, "_chunks", forbidden)
    got = await client.post(path, json={**body, "stream": True})
    assert got.status_code == 200
    assert got.text.endswith("data: [DONE]\n\n")
    assert '"error"' not in got.text


def writers(app):
    state = app._app.state
    return (
        state.openai_serving_chat.chat_completion_stream_generator.__self__,
        state.openai_serving_completion.completion_stream_generator.__self__,
    )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_escaped_as_pydantic_escapes_it(text):
    assert to_json(text) == pydantic_core.to_json(text)
