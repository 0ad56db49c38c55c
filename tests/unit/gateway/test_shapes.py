"""What is left out of answers and what is not."""

import json

import pytest

from cluster.gateway.routes import Shape
from cluster.gateway.shapes import RULES, apply, reshape, reshape_events


def test_absent_optional_members_of_a_chat_answer_are_left_out_and_required_ones_stay():
    answer = {
        "id": "a",
        "service_tier": None,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "refusal": None, "audio": None, "tool_calls": []},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 1, "prompt_tokens_details": None},
        "prompt_logprobs": [None, {"5": {"logprob": -1.0, "rank": None}}],
    }
    assert apply(answer, RULES[Shape.CHAT]) == {
        "id": "a",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "refusal": None, "tool_calls": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1},
        "prompt_logprobs": [None, {"5": {"logprob": -1.0, "rank": None}}],
    }


def test_what_the_user_sent_comes_back_untouched():
    schema = {"type": "object", "default": None, "properties": {"a": {"default": None}}}
    answer = {
        "object": "response",
        "status": "in_progress",
        "metadata": {"k": None},
        "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": None, "defer_loading": None}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "description": None}},
    }
    shaped = apply(answer, RULES[Shape.RESPONSE])
    assert shaped["metadata"] == {"k": None}
    assert shaped["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": schema, "strict": None}
    ]
    assert shaped["text"]["format"]["schema"] == schema


def test_a_completed_response_says_when_and_an_unfinished_one_does_not():
    done = apply({"object": "response", "status": "completed"}, RULES[Shape.RESPONSE])
    running = apply({"object": "response", "status": "in_progress"}, RULES[Shape.RESPONSE])
    assert isinstance(done["completed_at"], int)
    assert running["completed_at"] is None
    assert running["store"] is False


def test_a_message_gets_the_members_its_specification_requires():
    answer = {
        "type": "message",
        "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": None}}],
        "usage": {"input_tokens": 1, "output_tokens": 2},
        "stop_reason": "end_turn",
    }
    shaped = apply(answer, RULES[Shape.MESSAGE])
    assert shaped["stop_sequence"] is None
    assert shaped["usage"]["service_tier"] is None
    assert shaped["content"] == [
        {"type": "text", "text": "x", "citations": None},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": None}, "caller": {"type": "direct"}},
    ]


def test_events_keep_their_names_and_boundaries():
    chunk = b'event: a\ndata: {"x":null,"finish_reason":null}\n\ndata: [DONE]\n\n'
    assert reshape_events(chunk, Shape.CHAT) == b'event: a\ndata: {"finish_reason":null}\n\ndata: [DONE]\n\n'


def test_errors_inside_a_stream_pass_unchanged():
    chunk = b'data: {"error": {"message": "m", "param": null}}\n\n'
    assert reshape_events(chunk, Shape.CHAT) == chunk


@pytest.mark.parametrize("body", [b"", b"not json", b"[null]", b"null"])
def test_what_is_not_an_object_passes_unchanged(body):
    assert reshape(body, Shape.CHAT) == body


def test_other_routes_pass_unchanged():
    body = json.dumps({"a": None}).encode()
    assert reshape(body, Shape.OTHER) == body
