"""Streamed chat completions of the plain case, from templates."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from vllm.outputs import RequestOutput
from vllm.parser.abstract_parser import DelegatingParser

from cluster.gateway.templates import END, Usage, fingerprint, finish, head, is_empty, needs_vllm, to_json, written

_NOTHING = b"{}"


class ChatStreams:
    """Chat completions."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._slow = serving.chat_completion_stream_generator
        serving.chat_completion_stream_generator = self._generate

    def _generate(self, request: Any, results: Any, request_id: str, model: str, *rest: Any, **more: Any) -> Any:
        if not self._is_plain(request, more):
            return self._slow(request, results, request_id, model, *rest, **more)
        return written(self._serving, self._chunks(request, results, request_id, model))

    def _is_plain(self, request: Any, more: dict[str, Any]) -> bool:
        return self._passes_content_through(request) and is_plain_chat(self._serving, request, more)

    def _passes_content_through(self, request: Any) -> bool:
        """Whether nothing is parsed out of the text: no parser, or one of tool calls and no tools to call."""
        parser = self._serving.parser_cls
        if parser is None:
            return True
        return (
            issubclass(parser, DelegatingParser)
            and parser.reasoning_parser_cls is None
            and parser.tool_parser_cls is not None
            and not parser.tool_parser_cls.engine_based_streaming
            and request.tool_choice == "none"
        )

    async def _chunks(
        self, request: Any, results: AsyncIterator[RequestOutput], request_id: str, model: str
    ) -> AsyncGenerator[bytes, None]:
        serving, usage = self._serving, Usage()
        wants_usage = bool(request.stream_options and request.stream_options.include_usage)
        opening = head(request_id, b"chat.completion.chunk", int(time.time()), model)
        text = opening + b'[{"index":0,"delta":'
        running = b',"logprobs":null,"finish_reason":null}]}\n\n'
        role = b'{"role":%b,"content":""}' % to_json(serving.get_chat_request_role(request))
        waiting = text + role + running  # goes out with the first text, in one write
        ended = False
        async for result in results:
            if waiting:
                usage.start(result)
            output = result.outputs[0]
            if output.finish_reason == "error":
                yield waiting
                serving._raise_if_error(output.finish_reason, request_id)
            if not ended and not is_empty(output, usage):
                usage.completion_tokens += len(output.token_ids)
                ended = output.finish_reason is not None
                delta = self._delta(output.text)
                if ended or delta != _NOTHING:
                    waiting += text + delta + (finish(output, serving, wants_usage, b",") if ended else running)
            if waiting:
                yield waiting
            waiting = b""
        if wants_usage:
            yield opening + b"[]" + usage.json(serving.enable_prompt_tokens_details) + fingerprint(serving) + END

    def _delta(self, text: str) -> bytes:
        """Parsers, unlike vLLM without one, say nothing where there is no text."""
        if not text and self._serving.parser_cls is not None:
            return _NOTHING
        return b'{"content":' + to_json(text) + b"}"


def is_plain_chat(serving: Any, request: Any, more: Mapping[str, Any]) -> bool:
    """Whether the answer is one message of text and nothing else."""
    return not (
        (request.n or 1) != 1
        or request.logprobs
        or request.prompt_logprobs is not None
        or request.echo
        or request.tools
        or request.return_token_ids
        or request.return_prompt_text
        or more.get("mm_token_counts")
        or needs_vllm(serving, request)
    )
