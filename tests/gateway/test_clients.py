"""The public clients understand the gateway's answers."""

import json
import time
from collections.abc import AsyncIterator

import anthropic
import httpx2
import openai
import pytest

from cluster import errors
from tests.fakes.backend import Script
from tests.gateway.conftest import open_client
from tests.gateway.requests import USER
from tests.gateway.test_answers import TOOL, TOOL_CALL


@pytest.fixture
async def openai_client(tools_app, backend) -> AsyncIterator[openai.AsyncOpenAI]:
    async with open_client(tools_app) as http:
        yield openai.AsyncOpenAI(api_key="x", base_url="http://gateway/v1", http_client=http, max_retries=0)


@pytest.fixture
async def anthropic_client(tools_app, backend) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(tools_app), base_url="http://gateway") as http:
        yield anthropic.AsyncAnthropic(api_key="x", base_url="http://gateway", http_client=http, max_retries=0)


async def test_openai_chats(openai_client):
    answer = await openai_client.chat.completions.create(model="tiny", messages=USER, n=3, logprobs=True, seed=1)
    assert [c.message.content for c in answer.choices] == ["Hello, world!"] * 3
    assert answer.choices[0].logprobs.content[0].token == "Hello"
    assert answer.usage.prompt_tokens_details.cached_tokens == 3


async def test_openai_streams_with_usage(openai_client):
    options = {"include_usage": True}
    stream = await openai_client.chat.completions.create(
        model="tiny", messages=USER, stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content for c in chunks if c.choices) == "Hello, world!"
    assert chunks[-1].usage.completion_tokens == 4


async def test_openai_calls_tools(openai_client, backend):
    backend.script = lambda _: Script(pieces=(TOOL_CALL,))
    answer = await openai_client.chat.completions.create(model="tiny", messages=USER, tools=[TOOL])
    call = answer.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})


async def test_openai_completes(openai_client):
    answer = await openai_client.completions.create(model="tiny", prompt="hi", max_tokens=2)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello, ", "length")


async def test_openai_responds(openai_client):
    answer = await openai_client.responses.create(model="tiny", input="hi")
    assert answer.output_text == "Hello, world!"
    stream = await openai_client.responses.create(model="tiny", input="hi", stream=True)
    types = [event.type async for event in stream]
    assert (types[0], types[-1]) == ("response.created", "response.completed")


async def test_openai_lists_models(openai_client):
    assert [model.id async for model in openai_client.models.list()] == ["tiny"]


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (errors.Overloaded("full", 1), openai.RateLimitError),
        (errors.NoReplicaReady("none"), openai.InternalServerError),
        (errors.InvalidRequest("bad"), openai.BadRequestError),
    ],
)
async def test_openai_raises_what_it_should(openai_client, backend, refusal, raised):
    backend.refusal = refusal
    with pytest.raises(raised, match=str(refusal)):
        await openai_client.chat.completions.create(model="tiny", messages=USER)


async def test_openai_raises_in_mid_stream(openai_client, backend):
    backend.script = lambda _: Script(failure=errors.ReplicaLost("worker gone"), fail_before=2)
    stream = await openai_client.chat.completions.create(model="tiny", messages=USER, stream=True)
    with pytest.raises(openai.APIError, match="worker gone"):
        async for _ in stream:
            pass


async def test_anthropic_sends_messages(anthropic_client):
    answer = await anthropic_client.messages.create(model="tiny", max_tokens=32, messages=USER)
    assert answer.content[0].text == "Hello, world!"
    assert (answer.stop_reason, answer.usage.cache_read_input_tokens) == ("end_turn", 3)


async def test_anthropic_streams(anthropic_client):
    async with anthropic_client.messages.stream(model="tiny", max_tokens=32, messages=USER) as stream:
        assert "".join([text async for text in stream.text_stream]) == "Hello, world!"


async def test_anthropic_uses_tools(anthropic_client, backend):
    backend.script = lambda _: Script(pieces=(TOOL_CALL,))
    tool = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
    answer = await anthropic_client.messages.create(model="tiny", max_tokens=64, messages=USER, tools=[tool])
    assert answer.stop_reason == "tool_use"
    assert answer.content[-1].input == {"city": "Paris"}


async def test_anthropic_raises_what_it_should(anthropic_client, backend):
    backend.refusal = errors.Overloaded("full", 1)
    with pytest.raises(anthropic.RateLimitError, match="full"):
        await anthropic_client.messages.create(model="tiny", max_tokens=32, messages=USER)


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_comes_back_when_it_was_told_to(tools_app, backend, stream):
    waits = [0.25]
    backend.script = lambda _: Script(failure=errors.Overloaded("full", waits.pop())) if waits else Script()
    async with open_client(tools_app) as http:
        client = openai.AsyncOpenAI(api_key="x", base_url="http://gateway/v1", http_client=http, max_retries=1)
        began = time.monotonic()
        await client.completions.create(model="tiny", prompt="hi", stream=stream)
    assert len(backend.requests) == 2
    assert 0.25 <= time.monotonic() - began < 1.0


@pytest.mark.parametrize("status", [429, 504])
async def test_clients_do_not_come_back_where_that_is_of_no_use(tools_app, backend, status):
    failure = errors.Overloaded("full", 61.0) if status == 429 else errors.DeadlineExceeded("too long")
    backend.script = lambda _: Script(failure=failure)
    async with open_client(tools_app) as http:
        client = openai.AsyncOpenAI(api_key="x", base_url="http://gateway/v1", http_client=http)
        with pytest.raises(openai.APIStatusError) as told:
            await client.completions.create(model="tiny", prompt="hi")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(tools_app), base_url="http://gateway") as http2:
        other = anthropic.AsyncAnthropic(api_key="x", base_url="http://gateway", http_client=http2)
        with pytest.raises(anthropic.APIStatusError):
            await other.messages.create(model="tiny", messages=USER, max_tokens=4)
    assert told.value.status_code == status
    assert len(backend.requests) == 2, "a client came back"
