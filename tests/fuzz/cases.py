"""What is sent: one HTTP request as bytes, and how it is sent. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

USER = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

VALID: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"messages": USER}),
    ("/v1/chat/completions", {"messages": USER, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": USER, "n": 2, "logprobs": True, "top_logprobs": 3, "seed": 1}),
    ("/v1/chat/completions", {"messages": USER, "tools": [TOOL], "tool_choice": "auto", "stream": True}),
    ("/v1/chat/completions", {"messages": USER, "tools": [TOOL], "tool_choice": "required"}),
    (
        "/v1/chat/completions",
        {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [
                *USER,
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
            ]
        },
    ),
    (
        "/v1/chat/completions",
        {
            "messages": USER,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        },
    ),
    ("/v1/chat/completions", {"messages": USER, "structured_outputs": {"regex": "[a-z]+"}}),
    ("/v1/chat/completions", {"messages": USER, "structured_outputs": {"grammar": 'root ::= "a" | "b"'}}),
    ("/v1/chat/completions", {"messages": USER, "structured_outputs": {"choice": ["a", "b"]}, "stream": True}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "logit_bias": {"5": 1.0}},
    ),
    ("/v1/chat/completions/batch", {"messages": [USER, USER]}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "logprobs": 2, "echo": True}),
    ("/v1/completions", {"prompt": [5, 6, 7], "stream": True, "stop": ["x", "y"], "min_tokens": 2}),
    ("/v1/completions", {"prompt": [[5, 6], [7]], "prompt_logprobs": 1, "temperature": 0}),
    ("/v1/completions", {"prompt": "hi", "structured_outputs": {"json": SCHEMA}, "cache_salt": "s", "priority": 1}),
    ("/v1/responses", {"input": "hi"}),
    ("/v1/responses", {"input": USER, "stream": True, "instructions": "be brief"}),
    (
        "/v1/responses",
        {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        },
    ),
    (
        "/v1/responses",
        {"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, "top_logprobs": 2},
    ),
    ("/v1/messages", {"max_tokens": 8, "messages": USER}),
    ("/v1/messages", {"max_tokens": 8, "messages": USER, "stream": True, "system": "be brief"}),
    (
        "/v1/messages",
        {
            "max_tokens": 8,
            "messages": USER,
            "tools": [{"name": "f", "input_schema": SCHEMA}],
            "tool_choice": {"type": "auto"},
        },
    ),
    (
        "/v1/messages",
        {
            "max_tokens": 8,
            "messages": [
                *USER,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]},
            ],
        },
    ),
    ("/v1/messages/count_tokens", {"messages": USER}),
    ("/tokenize", {"prompt": "hi", "return_token_strs": True}),
    ("/tokenize", {"messages": USER, "tools": [TOOL]}),
    ("/detokenize", {"tokens": [5, 6]}),
)
"""Requests that are answered. The model's name is added."""

READS = (
    "/v1/models",
    "/version",
    "/health",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/redoc",
    "/v1/responses/resp_x",
    "/v1/responses/resp_x?stream=true&starting_after=0",
)

POSTS_WITHOUT_BODY = ("/v1/responses/resp_x/cancel",)


class Manner(Enum):
    """How the bytes come and what the client does then."""

    WHOLE = "whole"
    DRIPPED = "dripped"  # in many pieces
    STALLED = "stalled"  # the last part never comes; an answer is waited for
    CUT = "cut"  # the connection is closed in the middle of the body
    LEFT = "left"  # the client goes as soon as the answer begins


@dataclass(frozen=True, slots=True)
class Case:
    """One request. `said_length` is what Content-Length says, None for the truth."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    manner: Manner = Manner.WHOLE
    said_length: int | None = None

    @property
    def head(self) -> bytes:
        """Request line and headers."""
        length = len(self.body) if self.said_length is None else self.said_length
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: gateway"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += [f"Content-Length: {length}", "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace")

    def __str__(self) -> str:
        body = self.body if len(self.body) <= 2000 else self.body[:1000] + b" ... " + self.body[-200:]
        return f"{self.manner.value} {self.method} {self.target} {list(self.headers)} {body!r}"
