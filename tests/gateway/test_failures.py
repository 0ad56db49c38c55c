"""What fails behind the gateway, as clients see it: the real status while nothing has gone out, an event afterwards."""

import json

import pytest

from cluster import errors
from tests.fakes.backend import Script
from tests.gateway.requests import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    chat,
    completion,
    events,
    is_openai_error,
    message,
    response,
)

BODIES = {CHAT: chat(), COMPLETIONS: completion(), RESPONSES: response()}
FAILURES = [
    errors.InvalidRequest("no"),
    errors.Overloaded("no", 7.0),
    errors.NoReplicaReady("no"),
    errors.ReplicaLost("no"),
    errors.EngineFailed("no"),
    errors.DeadlineExceeded("no"),
]


def by_name(error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("error", [errors.Overloaded("full", 2.6), errors.NoReplicaReady("none")], ids=by_name)
@pytest.mark.parametrize("stream", [False, True])
async def test_who_is_not_admitted_is_told_when_to_come_back(client, backend, path, error, stream):
    backend.refusal = error
    got = await client.post(path, json={**BODIES[path], "stream": stream})
    assert got.status_code == error.status
    assert is_openai_error(got.json(), error.status)
    assert got.headers["retry-after"] == ("2" if error.status == 429 else "1")
    assert got.json()["error"]["type"] == ("RateLimitError" if error.status == 429 else "ServiceUnavailableError")
    assert backend.requests == []


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
async def test_who_may_not_wait_is_refused_before_any_streaming_begins(client, backend, path, stream):
    backend.script = lambda _: Script(failure=errors.Overloaded("full", 7.4))
    got = await client.post(path, json={**BODIES[path], "stream": stream})
    assert (got.status_code, got.headers["retry-after"]) == (429, "7")
    assert got.headers["content-type"] == "application/json"
    assert is_openai_error(got.json(), 429)
    assert got.json()["error"]["message"] == "full"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("error", FAILURES, ids=by_name)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_token_has_its_status(client, backend, path, error, stream):
    backend.script = lambda _: Script(failure=error)
    got = await client.post(path, json={**BODIES[path], "stream": stream})
    assert got.status_code == error.status
    assert is_openai_error(got.json(), error.status)
    assert ("retry-after" in got.headers) == (error.status in (429, 503))


@pytest.mark.parametrize("error", FAILURES, ids=by_name)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_response_has_its_status(client, backend, error, stream):
    backend.script = lambda _: Script(failure=error)
    got = await client.post(RESPONSES, json=response(stream=stream))
    assert got.status_code == error.status
    assert is_openai_error(got.json(), error.status)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(errors.Overloaded("no", 1), "rate_limit_error"), (errors.EngineFailed("no"), "api_error")],
    ids=["overloaded", "failed"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_message_has_its_status_and_anthropics_error(client, backend, error, kind, stream):
    backend.script = lambda _: Script(failure=error)
    got = await client.post(MESSAGES, json=message(stream=stream))
    assert got.status_code == error.status
    assert got.json()["error"]["type"] == kind


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_failure_in_mid_stream_is_an_event_and_the_stream_ends_properly(client, backend, path):
    backend.script = lambda _: Script(failure=errors.ReplicaLost("worker gone"), fail_before=2)
    got = await client.post(path, json={**BODIES[path], "stream": True})
    assert got.status_code == 200
    last = events(got.text)[-1]
    assert (last["error"]["code"], last["error"]["message"]) == (503, "worker gone")
    assert got.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("error", FAILURES, ids=by_name)
async def test_a_response_that_fails_in_mid_stream_ends_with_an_error_event(client, backend, error):
    backend.script = lambda _: Script(failure=error, fail_before=2)
    got = events((await client.post(RESPONSES, json=response(stream=True))).text)
    assert got[-1] == {**got[-1], "type": "error", "message": "no", "param": None}
    assert [e["sequence_number"] for e in got] == list(range(len(got)))


@pytest.mark.parametrize("error", FAILURES, ids=by_name)
async def test_a_message_that_fails_in_mid_stream_ends_with_an_error_event(client, backend, error):
    backend.script = lambda _: Script(failure=error, fail_before=2)
    got = events((await client.post(MESSAGES, json=message(stream=True))).text)
    assert [e["type"] for e in got[:2]] == ["message_start", "content_block_start"]
    assert (got[-1]["type"], got[-1]["error"]["message"]) == ("error", "no")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unforeseen_error_tells_nothing_of_our_insides(client, backend, stream):
    backend.script = lambda _: Script(failure=KeyError("secret/path.py"))
    got = await client.post(CHAT, json=chat(stream=stream))
    assert got.status_code == 500
    assert is_openai_error(got.json(), 500)
    assert "secret" not in got.text


async def test_a_stream_that_ends_without_an_answer_is_a_failure(client, backend):
    backend.script = lambda _: Script(pieces=())
    got = await client.post(CHAT, json=chat())
    assert got.status_code == 500
    assert is_openai_error(got.json(), 500)


async def test_health_is_what_the_backend_says(client, backend):
    assert (await client.get("/health")).status_code == 200
    backend.illness = errors.EngineFailed("the engine makes no steps")
    got = await client.get("/health")
    assert got.status_code == 503
    assert json.loads(got.text)["error"]["message"] == "the engine makes no steps"


async def test_metrics_are_ours(client):
    got = await client.get("/metrics")
    assert got.text == "baton_test 1.0\n"
    assert got.headers["content-type"].startswith("text/plain")
