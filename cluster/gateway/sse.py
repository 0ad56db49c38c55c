"""Streams of the plain case, written from templates: the bytes of vLLM's own generators at a fraction of their cost.

vLLM builds and validates pydantic objects for every chunk. One output, no logprobs, no tools, no echo: then only the
text changes from chunk to chunk, and the rest is a template made once. Everything else goes to vLLM's generators. The
bytes are those of vLLM's generator brought into shape by `cluster.gateway.shapes`.
"""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
from vllm.exceptions import GenerationError
from vllm.outputs import CompletionOutput, RequestOutput

from cluster.gateway.scope import current_scope

_log = logging.getLogger(__name__)
_json = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"
_END = b"}\n\n"


def install(state: Any) -> None:
    """Put the writers in front of the generators of vLLM's chat and completion handlers."""
    ChatStreams(state.openai_serving_chat)
    CompletionStreams(state.openai_serving_completion)


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


class ChatStreams:
    """Chat completions."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._slow = serving.chat_completion_stream_generator
        serving.chat_completion_stream_generator = self._generate

    def _generate(self, request: Any, results: Any, request_id: str, model: str, *rest: Any, **more: Any) -> Any:
        if not self._is_plain(request, more):
            return self._slow(request, results, request_id, model, *rest, **more)
        return _written(self._serving, self._chunks(request, results, request_id, model))

    def _is_plain(self, request: Any, more: dict[str, Any]) -> bool:
        serving = self._serving
        return not (
            serving.parser_cls is not None
            or (request.n or 1) != 1
            or request.logprobs
            or request.echo
            or request.tools
            or request.return_token_ids
            or request.return_prompt_text
            or more.get("mm_token_counts")
            or _needs_vllm(serving, request)
        )

    async def _chunks(
        self, request: Any, results: AsyncIterator[RequestOutput], request_id: str, model: str
    ) -> AsyncGenerator[bytes, None]:
        serving, usage = self._serving, Usage()
        wants_usage = bool(request.stream_options and request.stream_options.include_usage)
        head = _head(request_id, b"chat.completion.chunk", int(time.time()), model)
        text = head + b'[{"index":0,"delta":{"content":'
        running = b'},"logprobs":null,"finish_reason":null}]}\n\n'
        role = _json(serving.get_chat_request_role(request))
        waiting = (
            head + b'[{"index":0,"delta":{"role":%b,"content":""},"logprobs":null,"finish_reason":null}]}\n\n' % role
        )
        ended = False
        async for result in results:
            if waiting:
                usage.start(result)
            output = result.outputs[0]
            if output.finish_reason == "error":
                yield waiting
                serving._raise_if_error(output.finish_reason, request_id)
            if not ended and not _is_empty(output, usage):
                usage.completion_tokens += len(output.token_ids)
                ended = output.finish_reason is not None
                tail = _finish(output, serving, wants_usage, b"},") if ended else running
                yield waiting + text + _json(output.text) + tail
            elif waiting:
                yield waiting
            waiting = b""
        if wants_usage:
            yield head + b"[]" + usage.json(serving.enable_prompt_tokens_details) + _fingerprint(serving) + _END


class CompletionStreams:
    """Text completions."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._slow = serving.completion_stream_generator
        serving.completion_stream_generator = self._generate

    def _generate(
        self, request: Any, inputs: Any, results: Any, request_id: str, created: int, model: str, **more: Any
    ) -> Any:
        if not self._is_plain(request, more):
            return self._slow(request, inputs, results, request_id, created, model, **more)
        return _written(self._serving, self._chunks(request, results, request_id, created, model))

    def _is_plain(self, request: Any, more: dict[str, Any]) -> bool:
        return not (
            more.get("num_prompts") != 1
            or (request.n or 1) != 1
            or request.logprobs is not None
            or request.prompt_logprobs is not None
            or request.echo
            or request.return_token_ids
            or _needs_vllm(self._serving, request)
        )

    async def _chunks(
        self, request: Any, results: AsyncIterator[tuple[int, RequestOutput]], request_id: str, created: int, model: str
    ) -> AsyncGenerator[bytes, None]:
        serving, usage = self._serving, Usage()
        wants_usage = bool(request.stream_options and request.stream_options.include_usage)
        head = _head(request_id, b"text_completion", created, model)
        text = head + b'[{"index":0,"text":'
        running = b',"logprobs":null,"finish_reason":null}]}\n\n'
        first = True
        async for _, result in results:
            if first:
                usage.start(result)
                first = False
            output = result.outputs[0]
            serving._raise_if_error(output.finish_reason, request_id)
            if _is_empty(output, usage):
                continue
            usage.completion_tokens += len(output.token_ids)
            tail = running if output.finish_reason is None else _finish(output, serving, wants_usage, b",")
            yield text + _json(output.text) + tail
        if wants_usage:
            yield head + b"[]" + usage.json(serving.enable_prompt_tokens_details) + _fingerprint(serving) + _END


def _needs_vllm(serving: Any, request: Any) -> bool:
    """Whether something is asked for, in the request or by the server's arguments, that the templates do not know."""
    options = request.stream_options
    return bool(
        serving.enable_force_include_usage
        or serving.enable_per_request_metrics
        or getattr(serving, "enable_log_outputs", False)
        or (options is not None and options.include_usage and options.continuous_usage_stats)
    )


def _is_empty(output: CompletionOutput, usage: Usage) -> bool:
    """vLLM sends no chunk for a result without text and tokens before the first token."""
    return not (output.text or output.token_ids or usage.completion_tokens)


def _head(request_id: str, kind: bytes, created: int, model: str) -> bytes:
    members = (_json(request_id), kind, created, _json(model))
    return b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":' % members


def _finish(output: CompletionOutput, serving: Any, usage_follows: bool, opening: bytes) -> bytes:
    """The end of the last chunk with text. Where usage follows, that chunk carries the fingerprint."""
    stop = b"" if output.stop_reason is None else b',"stop_reason":' + _json(output.stop_reason)
    choice = opening + b'"logprobs":null,"finish_reason":' + _json(output.finish_reason) + stop + b"}]"
    return choice + (b"" if usage_follows else _fingerprint(serving)) + _END


def _fingerprint(serving: Any) -> bytes:
    if serving.system_fingerprint is None:
        return b""
    return b',"system_fingerprint":' + _json(serving.system_fingerprint)


async def _written(serving: Any, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
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
