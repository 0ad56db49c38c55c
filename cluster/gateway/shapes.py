"""The shape of answers: what vLLM leaves `null` is left out, unless the API's own specification requires the key.

One rule for each API: which keys stay when they are null, which subtrees belong to the user and are never touched,
and which required keys vLLM does not send and what they are when there is nothing to say. Elements of lists are never
dropped. Works on decoded JSON, in place; errors pass unchanged.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.gateway.routes import Shape

Json = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Rule:
    """`keep`: required although null. `opaque`: the user's own. `complete` adds required keys that are missing."""

    keep: frozenset[str]
    opaque: frozenset[str] = frozenset()
    complete: Callable[[Json], None] | None = None


def reshape(body: bytes, shape: Shape) -> bytes:
    """A whole JSON answer in its specified shape. What is not a JSON object passes unchanged."""
    rule = RULES.get(shape)
    if rule is None:
        return body
    try:
        answer = _decode(body)
    except msgspec.DecodeError:
        return body
    if not isinstance(answer, dict):
        return body
    return _encode(apply(answer, rule))


def reshape_events(chunk: bytes, shape: Shape) -> bytes:
    """Whole server-sent events in their specified shape."""
    rule = RULES.get(shape)
    if rule is None:
        return chunk
    return b"\n".join(_line(line, rule) for line in chunk.split(b"\n"))


def _line(line: bytes, rule: Rule) -> bytes:
    if not line.startswith(b"data: {") or line.startswith(b'data: {"error"'):
        return line
    return b"data: " + _encode(apply(_decode(line[6:]), rule))


def apply(answer: Json, rule: Rule) -> Json:
    """`answer` itself, brought into shape."""
    _drop_absent(answer, rule)
    if rule.complete is not None:
        rule.complete(answer)
    return answer


def _drop_absent(node: Json, rule: Rule) -> None:
    absent = [key for key, value in node.items() if value is None and key not in rule.keep]
    for key in absent:
        del node[key]
    for key, value in node.items():
        if key in rule.opaque:
            continue
        if type(value) is dict:
            _drop_absent(value, rule)
        elif type(value) is list:
            for element in value:
                if type(element) is dict:
                    _drop_absent(element, rule)


def _missing(node: Json, defaults: Mapping[str, Any]) -> None:
    for key, value in defaults.items():
        node.setdefault(key, value)


def _complete_chat(answer: Json) -> None:
    for choice in answer.get("choices", ()):
        logprobs = choice.get("logprobs")
        if logprobs:
            logprobs.setdefault("refusal", None)


_RESPONSE_NULLS = dict.fromkeys(
    (
        "completed_at",
        "incomplete_details",
        "previous_response_id",
        "instructions",
        "error",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "safety_identifier",
        "prompt_cache_key",
    )
)


def _complete_response(answer: Json) -> None:
    """A Response is the answer itself, or carried by an event as `response`."""
    resource = answer.get("response", answer)
    if isinstance(resource, dict) and resource.get("object") == "response":
        _complete_resource(resource)


def _complete_resource(resource: Json) -> None:
    if resource.get("status") == "completed" and resource.get("completed_at") is None:
        resource["completed_at"] = int(time.time())
    _missing(resource, _RESPONSE_NULLS)
    # Nothing is stored: another gateway could not find it.
    _missing(resource, {"store": False, "metadata": {}, "top_logprobs": 0, "text": {"format": {"type": "text"}}})
    for tool in resource.get("tools", ()):
        if tool.get("type") == "function":
            _missing(tool, {"description": None, "parameters": None, "strict": None})


_MESSAGE_NULLS = dict.fromkeys(("stop_reason", "stop_sequence", "stop_details", "container"))
_USAGE_NULLS = dict.fromkeys(
    (
        "cache_creation",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "inference_geo",
        "output_tokens_details",
        "server_tool_use",
        "service_tier",
    )
)


def _complete_message(answer: Json) -> None:
    """A Message is the answer itself, or carried by `message_start`; blocks come alone in `content_block_start`."""
    if answer.get("type") == "content_block_start":
        _complete_block(answer["content_block"])
    elif answer.get("type") == "message_delta":
        _missing(answer.get("delta", {}), {"stop_reason": None, "stop_sequence": None})
    message = answer.get("message", answer)
    if not isinstance(message, dict) or message.get("type") != "message":
        return
    _missing(message, _MESSAGE_NULLS)
    _missing(message["usage"], _USAGE_NULLS)
    for block in message["content"]:
        _complete_block(block)


def _complete_block(block: Json) -> None:
    if block.get("type") == "text":
        block.setdefault("citations", None)
    elif block.get("type") == "tool_use":
        block.setdefault("caller", {"type": "direct"})


RULES: Mapping[Shape, Rule] = {
    Shape.CHAT: Rule(
        keep=frozenset({"finish_reason", "logprobs", "content", "refusal", "bytes", "param"}),
        opaque=frozenset({"prompt_logprobs", "metrics"}),
        complete=_complete_chat,
    ),
    Shape.COMPLETION: Rule(
        keep=frozenset({"finish_reason", "logprobs", "param"}),
        opaque=frozenset({"prompt_logprobs", "top_logprobs", "metrics"}),
    ),
    Shape.RESPONSE: Rule(
        keep=frozenset({*_RESPONSE_NULLS, "description", "parameters", "strict", "effort", "summary", "param"}),
        opaque=frozenset({"metadata", "parameters", "schema", "prompt", "input_messages", "output_messages"}),
        complete=_complete_response,
    ),
    Shape.MESSAGE: Rule(
        keep=frozenset({*_MESSAGE_NULLS, *_USAGE_NULLS, "citations"}),
        opaque=frozenset({"input"}),
        complete=_complete_message,
    ),
}
