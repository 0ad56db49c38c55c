"""The pieces that streamed chunks of chat and completions are made of, and the end that every stream has.

Byte for byte what vLLM's generators write, brought into shape by `cluster.gateway.shapes`.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from vllm.exceptions import GenerationError
from vllm.outputs import CompletionOutput, RequestOutput

from cluster.gateway.scope import current_scope

_log = logging.getLogger(__name__)
_DONE = b"data: [DONE]\n\n"
END = b"}\n\n"

to_json = msgspec.json.Encoder().encode


class Usage:
    """Tokens of one stream, as its last chunk reports them."""

    __slots__ = ("cached_tokens", "completion_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens: int | None = None

    def start(self, result: RequestOutput) -> None:
        """Take the prompt's numbers from the first result."""
        self.prompt_tokens = len(result.prompt_token_ids or ())
        self.cached_tokens = result.num_cached_tokens

    def json(self, with_details: bool) -> bytes:
        """The `usage` member, with its name."""
        total = self.prompt_tokens + self.completion_tokens
        details = b""
        if with_details and self.cached_tokens is not None:
            details = b',"prompt_tokens_details":{"cached_tokens":%d}' % self.cached_tokens
        numbers = (self.prompt_tokens, total, self.completion_tokens, details)
        return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d%b}' % numbers


def needs_vllm(serving: Any, request: Any) -> bool:
    """Whether something is asked for, in the request or by the server's arguments, that the templates do not know."""
    options = request.stream_options
    return bool(
        serving.enable_force_include_usage
        or serving.enable_per_request_metrics
        or getattr(serving, "enable_log_outputs", False)
        or (options is not None and options.include_usage and options.continuous_usage_stats)
    )


def is_empty(output: CompletionOutput, usage: Usage) -> bool:
    """vLLM sends no chunk for a result without text and tokens before the first token."""
    return not (output.text or output.token_ids or usage.completion_tokens)


def head(request_id: str, kind: bytes, created: int, model: str) -> bytes:
    members = (to_json(request_id), kind, created, to_json(model))
    return b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":' % members


def finish(output: CompletionOutput, serving: Any, usage_follows: bool, opening: bytes) -> bytes:
    """The end of the last chunk with text. Where usage follows, that chunk carries the fingerprint."""
    stop = b"" if output.stop_reason is None else b',"stop_reason":' + to_json(output.stop_reason)
    choice = opening + b'"logprobs":null,"finish_reason":' + to_json(output.finish_reason) + stop + b"}]"
    return choice + (b"" if usage_follows else fingerprint(serving)) + END


def fingerprint(serving: Any) -> bytes:
    if serving.system_fingerprint is None:
        return b""
    return b',"system_fingerprint":' + to_json(serving.system_fingerprint)


async def written(serving: Any, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The chunks, an error as vLLM writes it, and the end."""
    scope = current_scope.get()
    if scope is not None:
        scope.shaped = True
    try:
        async for chunk in chunks:
            yield chunk
    except GenerationError as error:
        yield f"data: {serving._convert_generation_error_to_streaming_response(error)}\n\n".encode()
    except Exception as error:
        _log.warning("a stream failed: %s", error)
        yield f"data: {serving.create_streaming_error_response(error)}\n\n".encode()
    yield _DONE
