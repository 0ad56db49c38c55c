"""Every API of vLLM's server, through the gateway, over a fake backend."""

import json

import msgspec
import pytest
from vllm.sampling_params import RequestOutputKind, SamplingParams

from tests.fakes.backend import Script
from tests.gateway.requests import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    USER,
    chat,
    completion,
    events,
    message,
    response,
)

TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
TOOL_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


async def test_a_chat_answer_has_its_text_its_reason_and_its_usage(client, backend):
    answer = (await client.post(CHAT, json=chat())).json()
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello, world!", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["usage"]["prompt_tokens"] == len(backend.requests[0].token_ids)


async def test_a_streamed_answer_is_the_same_answer(client):
    got = await client.post(CHAT, json=chat(stream=True, stream_options={"include_usage": True}))
    chunks = events(got.text)
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks[:-1]) == "Hello, world!"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert got.text.endswith("data: [DONE]\n\n")


async def test_a_worker_gets_the_parameters_whole_under_an_id_of_ours(client, backend):
    body = chat(seed=7, stop=["x"], temperature=0.5, max_tokens=9, logit_bias={"5": 2.0}, cache_salt="s")
    await client.post(CHAT, json=body, headers={"X-Request-Id": "mine"})
    request = backend.requests[0]
    sampling = msgspec.msgpack.decode(request.sampling, type=SamplingParams)
    assert (sampling.seed, sampling.stop, sampling.temperature, sampling.max_tokens) == (7, ["x"], 0.5, 9)
    assert sampling.logit_bias == {5: 2.0}
    assert sampling.output_kind is RequestOutputKind.DELTA
    assert (request.cache_salt, request.max_tokens, request.outputs) == ("s", 9, 1)
    assert "mine" not in request.request_id


async def test_without_max_tokens_the_context_is_the_limit(client, backend):
    await client.post(CHAT, json=chat())
    request = backend.requests[0]
    assert request.max_tokens == 512 - len(request.token_ids)


async def test_clients_do_not_choose_kv_transfers_priority_by_header_or_rank(client, backend):
    body = chat(kv_transfer_params={"do_remote_prefill": True}, vllm_xargs={"kept": 1})
    await client.post(CHAT, json=body, headers={"X-Vllm-Priority": "9", "X-data-parallel-rank": "3"})
    assert msgspec.msgpack.decode(backend.requests[0].sampling)["extra_args"] == {"kept": 1}
    assert backend.requests[0].priority == 0


async def test_trace_headers_go_on(client, backend):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await client.post(CHAT, json=chat(), headers={"traceparent": parent})
    assert backend.requests[0].trace_headers == {"traceparent": parent}


async def test_a_stop_string_is_reported(client, backend):
    backend.script = lambda _: Script(pieces=("a",), stop_reason="x")
    answer = (await client.post(COMPLETIONS, json=completion(stop="x"))).json()
    assert (answer["choices"][0]["finish_reason"], answer["choices"][0]["stop_reason"]) == ("stop", "x")


async def test_a_length_limit_is_reported(client):
    answer = (await client.post(COMPLETIONS, json=completion(max_tokens=2))).json()
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("Hello, ", "length")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_three_outputs_are_three_choices(client, backend, path):
    body = chat(n=3) if path == CHAT else completion(n=3)
    answer = (await client.post(path, json=body)).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 12
    assert backend.requests[0].outputs == 3
    streamed = events((await client.post(path, json={**body, "stream": True})).text)
    assert {c["choices"][0]["index"] for c in streamed} == {0, 1, 2}
    assert sum(c["choices"][0]["finish_reason"] == "stop" for c in streamed) == 3


async def test_several_prompts_are_several_requests(client, backend):
    answer = (await client.post(COMPLETIONS, json=completion(prompt=["a", "b"]))).json()
    assert [c["text"] for c in answer["choices"]] == ["Hello, world!"] * 2
    assert len({r.request_id for r in backend.requests}) == 2


async def test_several_conversations_may_come_at_once(client, backend):
    answer = (await client.post(CHAT + "/batch", json={"model": "tiny", "messages": [USER, USER]})).json()
    assert [c["message"]["content"] for c in answer["choices"]] == ["Hello, world!"] * 2
    assert len(backend.requests) == 2


async def test_chat_logprobs_have_candidates_and_the_shape_of_the_specification(client):
    answer = (await client.post(CHAT, json=chat(logprobs=True, top_logprobs=2, max_tokens=1))).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert [(c["token"], c["logprob"]) for c in logprobs["content"]] == [("Hello", -0.5)]
    assert [c["token"] for c in logprobs["content"][0]["top_logprobs"]] == ["Hello", "alt1"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_logprobs_of_tokens_that_are_named_come(client, path):
    wanted = {"logprob_token_ids": [40, 41], "max_tokens": 1}
    body = chat(logprobs=True, **wanted) if path == CHAT else completion(logprobs=2, **wanted)
    answer = await client.post(path, json=body)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["logprobs"] is not None


async def test_streamed_logprobs_come_with_their_tokens(client):
    chunks = events((await client.post(CHAT, json=chat(logprobs=True, max_tokens=2, stream=True))).text)
    tokens = [c["choices"][0]["logprobs"]["content"][0]["token"] for c in chunks if c["choices"][0]["logprobs"]]
    assert tokens == ["Hello", ", "]


async def test_prompt_logprobs_come_and_keep_prefill_where_decode_is(client, backend):
    answer = (await client.post(COMPLETIONS, json=completion(prompt_logprobs=1))).json()
    logprobs = answer["choices"][0]["prompt_logprobs"]
    assert logprobs[0] is None
    assert len(logprobs) == len(backend.requests[0].token_ids)
    assert not backend.requests[0].may_disaggregate


async def test_other_requests_may_be_split(client, backend):
    await client.post(COMPLETIONS, json=completion())
    assert backend.requests[0].may_disaggregate


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_repeats_the_prompt_with_its_logprobs(client, stream):
    got = await client.post(COMPLETIONS, json=completion(echo=True, logprobs=1, max_tokens=1, stream=stream))
    choice = (events(got.text)[0] if stream else got.json())["choices"][0]
    assert choice["text"] == "hiHello"
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -0.5]


async def test_tool_calls_are_parsed(tools_client, backend):
    backend.script = lambda _: Script(pieces=(TOOL_CALL,))
    answer = (await tools_client.post(CHAT, json=chat(tools=[TOOL]))).json()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    function = choice["message"]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("weather", {"city": "Paris"})


async def test_streamed_tool_calls_are_parsed(tools_client, backend):
    backend.script = lambda _: Script(pieces=(TOOL_CALL[:20], TOOL_CALL[20:40], TOOL_CALL[40:]))
    chunks = events((await tools_client.post(CHAT, json=chat(tools=[TOOL], stream=True))).text)
    calls = [call for c in chunks for call in c["choices"][0]["delta"].get("tool_calls", ())]
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert calls[0]["function"]["name"] == "weather"
    assert json.loads(arguments) == {"city": "Paris"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_json_schema_constrains_the_worker(client, backend):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert (await client.post(CHAT, json=chat(response_format=wanted))).status_code == 200
    constraint = msgspec.msgpack.decode(backend.requests[0].sampling, type=SamplingParams).structured_outputs
    assert json.loads(constraint.json) if isinstance(constraint.json, str) else constraint.json == schema


async def test_a_response_answers(client):
    answer = (await client.post(RESPONSES, json=response())).json()
    assert answer["status"] == "completed"
    assert answer["output"][0]["content"][0] == {"type": "output_text", "text": "Hello, world!", "annotations": []}
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == 3


async def test_a_streamed_response_ends_with_its_whole(client):
    got = events((await client.post(RESPONSES, json=response(stream=True))).text)
    assert [e["sequence_number"] for e in got] == list(range(len(got)))
    assert got[0]["type"] == "response.created"
    assert got[-1]["type"] == "response.completed"
    assert got[-1]["response"]["output"][0]["content"][0]["text"] == "Hello, world!"


async def test_a_message_answers(client):
    answer = (await client.post(MESSAGES, json=message())).json()
    assert answer["content"] == [{"type": "text", "text": "Hello, world!", "citations": None}]
    assert answer["stop_reason"] == "end_turn"
    assert answer["usage"]["cache_read_input_tokens"] == 3


async def test_a_streamed_message_follows_its_lifecycle(client):
    got = events((await client.post(MESSAGES, json=message(stream=True))).text)
    assert [e["type"] for e in got] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 4,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_tokens_are_counted_made_and_undone(client):
    made = (await client.post("/tokenize", json={"model": "tiny", "prompt": "hello"})).json()
    undone = (await client.post("/detokenize", json={"model": "tiny", "tokens": made["tokens"]})).json()
    counted = (await client.post(MESSAGES + "/count_tokens", json={"model": "tiny", "messages": USER})).json()
    assert undone["prompt"] == "hello"
    assert made["count"] == len(made["tokens"])
    assert counted["input_tokens"] > 0


async def test_the_model_is_listed_without_its_place_on_our_disk(client, model_folder):
    got = await client.get("/v1/models")
    card = got.json()["data"][0]
    assert (card["id"], card["max_model_len"]) == ("tiny", 512)
    assert str(model_folder) not in got.text


async def test_the_api_describes_itself(client):
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert {CHAT, COMPLETIONS, RESPONSES, MESSAGES, "/tokenize", "/v1/models"} <= set(paths)
    assert "/scale_elastic_ep" not in paths
    assert (await client.get("/version")).json()["version"]
